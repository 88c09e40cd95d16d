"""DB-BeBold: rewards steps from known to unknown states, measured in DB's representation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.db_ucb import UCBOptions, UpperConfidence
from ssedb.validate import NonNegativeFloat


@dataclass(frozen=True)
class BeBoldOptions(UCBOptions):
    """DB-UCB's choices, and how much of the state left behind is subtracted."""

    regulation: NonNegativeFloat = 0.5
    """The reward is novelty of the next state minus this times the novelty of the current one, 0 if that is negative."""


class BeBold(UpperConfidence):
    """Reward for the gain in novelty from one state to the next, in DB's representation."""

    Options = BeBoldOptions
    examples: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: BeBoldOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.regulation = options.regulation
        self.register_buffer("examples", self.actions.examples(), persistent=False)

    def state(self, obs: Tensor) -> Tensor:
        """Represent a state by the mean [B, Z] over its state-action pairs, which DB represents.

        Of several choices, or of vectors, some fixed actions stand for all.
        """
        encoded = self.encoder(self.normalize.for_convs(obs))
        means = [
            self.posterior(encoded, action.expand(len(obs), -1))[0] for action in self.examples
        ]
        return torch.stack(means).mean(0)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return (
            self.gain(self.state(next_obs)) - self.regulation * self.gain(self.state(obs))
        ).clamp_min(0)

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.add(self.state(obs))


BONUS = BeBold
