"""No bonus: the agent acts at random, or for the game's own reward if `extrinsic_coef` is set."""

from __future__ import annotations

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, BonusOptions


class NoBonus(Bonus):
    """No reward: a uniformly random agent, the baseline of all others."""

    gives_reward = False

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: BonusOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)

    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return torch.zeros(len(obs), device=obs.device)

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros((), device=obs.device), {}


BONUS = NoBonus
