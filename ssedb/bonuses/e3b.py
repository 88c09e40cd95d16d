"""E3B: an elliptical bonus within the episode, over inverse-dynamics features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.base import Context, Encoded, FeatureOptions, episode_numbers
from ssedb.networks import InverseModel
from ssedb.objectives import masked_mean
from ssedb.validate import PositiveFloat, PositiveInt


@dataclass(frozen=True)
class E3BOptions(FeatureOptions):
    """Settings of E3B."""

    feature_dim: PositiveInt = 64
    """Size of the features; each episode under way needs a matrix of this side."""
    ridge: PositiveFloat = 0.1
    """C begins as this times the identity."""
    slots: PositiveInt = 1024
    """Episodes kept at once; with a multiple of the environments no current one is lost."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}  # features of one size


NOBODY = torch.iinfo(torch.int64).min
"""Owner of a slot that no episode has; below the number of any."""


class EllipticalEpisodicBonus(Encoded):
    """Reward for next states unlike those of the same episode, in inverse-dynamics features (E3B).

    b_t = x_t' C_{t-1}^-1 x_t, x_t the features of the next state and C_{t-1} = ridge I + the sum of
    x x' over the episode so far. Without a context every transition is an episode of its own.
    """

    Options = E3BOptions
    uses_context = True
    capturable = False  # the number of episodes in a batch depends on data
    owners: Tensor
    sums: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: E3BOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.inverse = InverseModel(options.feature_dim, num_actions)
        self.ridge = options.ridge
        side = options.feature_dim
        sums = torch.zeros(options.slots, side, side, dtype=torch.float64)
        self.register_buffer("owners", torch.full((options.slots,), NOBODY))  # episode of each slot
        self.register_buffer("sums", sums)  # of x x'

    @torch.no_grad()
    def reward(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> Tensor:
        x = self.encode(next_obs)
        return self.novelty(x.double(), episode_numbers(x, context)).float()

    def novelty(self, x: Tensor, episodes: Tensor) -> Tensor:
        """Return b_t = x_t' C_{t-1}^-1 x_t of every row.

        Args:
            x: features, [B, D], those of an episode in the order of time.
            episodes: number of each row's episode, int64 [B].

        Returns:
            Rewards, [B].
        """
        inverse, rows = self.inverses(episodes)
        kernel = torch.einsum("bi,bij->bj", x, inverse[rows]) @ x.T
        kernel = (kernel + kernel.T) / 2  # rounding is not symmetric
        kernel = torch.where(episodes[:, None] == episodes, kernel, 0.0)
        # The square of pivot t of I + X C^-1 X' is 1 + b_t, with all earlier rows of the episode
        # in C.
        identity = torch.eye(len(x), dtype=x.dtype, device=x.device)
        pivots = torch.linalg.cholesky(kernel + identity).diagonal()
        return (pivots.square() - 1).clamp_min(0)

    def inverses(self, episodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return C^-1 of each episode [E, D, D] before a batch, and each row's index in it [B]."""
        numbers, rows = episodes.unique(return_inverse=True)
        slots = numbers % len(self.owners)
        known = self.owners[slots] == numbers
        identity = torch.eye(self.sums.shape[-1], dtype=self.sums.dtype, device=self.sums.device)
        ellipses = self.ridge * identity + torch.where(known[:, None, None], self.sums[slots], 0.0)
        return torch.cholesky_inverse(torch.linalg.cholesky(ellipses)), rows

    @torch.no_grad()
    def observe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> None:
        if context is None:
            return
        slots = context.episodes % len(self.owners)
        before = self.owners.clone()
        # Of episodes that share a slot, the newest, which has the largest number, stays.
        self.owners.scatter_reduce_(0, slots, context.episodes, "amax")
        self.sums[self.owners != before] = 0
        kept = self.owners[slots] == context.episodes
        x = self.encode(next_obs[kept]).double()
        self.sums.index_add_(0, slots[kept], x[:, :, None] * x[:, None, :])

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        errors = self.inverse.errors(self.encode(obs), actions, self.encode(next_obs))
        return masked_mean(errors, mask), {}


BONUS = EllipticalEpisodicBonus
