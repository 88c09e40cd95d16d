"""Counts: rewards a state-action pair by 1 / sqrt(N + 1), N its earlier visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, BonusOptions, Context
from ssedb.envs.names import rooms_world
from ssedb.errors import ConfigError
from ssedb.validate import PositiveInt

STDS = 4.0
"""Distance from the mean, in stds, up to which values of a vector are told apart."""


@dataclass(frozen=True)
class CountOptions(BonusOptions):
    """Settings of the counts."""

    counted: Literal["frames", "states"] = "frames"
    """What to count: coarse newest frames or vectors, or true states (the default on Rooms)."""
    grid: PositiveInt = 12
    """Rows and columns of a coarse frame."""
    levels: Annotated[int, Ge(2)] = 8
    """Gray levels of a coarse frame; of a vector, parts of each dimension from -4 to 4 stds."""
    table_bits: Annotated[int, Ge(1), Le(30)] = 22
    """Log2 of the table's entries: frames are hashed, fewer state-action pairs are exact."""

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        return {"counted": "states"} if env is not None and rooms_world(env) is not None else {}


class Count(Bonus):
    """Reward for rare state-action pairs: of true states on Rooms, of coarse frames elsewhere."""

    Options = CountOptions
    uses_context = True
    visits: Tensor
    keys: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: CountOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.options = options
        self.needs_states = options.counted == "states"
        self.register_buffer("visits", torch.zeros(2**options.table_bits, dtype=torch.int32))
        keys = torch.Generator().manual_seed(0)  # the same hash in every run
        counted = obs_shape[0] if len(obs_shape) == 1 else options.grid**2
        self.register_buffer("keys", torch.randint(2**40, (counted,), generator=keys) * 2 + 1)

    def entries(self, obs: Tensor, actions: Tensor, context: Context | None) -> Tensor:
        """Return the table's entry for each state-action pair, int64 [B]."""
        self.normalize.require_shape(obs)
        if self.options.counted == "states":
            if context is None or context.states is None:
                raise ConfigError(
                    "counted=states: this environment does not tell its true states; use frames"
                )
            ids = context.states
        else:
            ids = (self.levels(obs) * self.keys).sum(1) >> 11  # the low bits of a product are poor
        return (ids * self.actions.codes + self.actions.code(actions)) % len(self.visits)

    def levels(self, obs: Tensor) -> Tensor:
        """Round newest frames on a coarse grid, or vectors, to whole numbers, int64 [B, K]."""
        levels = self.options.levels
        if obs.ndim == 2:
            parts = (self.normalize(obs) / (2 * STDS) + 0.5) * levels
            return parts.floor().clamp(0, levels - 1).long()
        coarse = adaptive_avg_pool2d(obs[:, -1:].float(), self.options.grid).flatten(1)
        return (coarse * (levels / 256)).long()

    @torch.no_grad()
    def reward(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> Tensor:
        return (self.visits[self.entries(obs, actions, context)] + 1.0).rsqrt()

    @torch.no_grad()
    def observe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> None:
        entries = self.entries(obs, actions, context)
        self.visits.scatter_add_(0, entries, torch.ones_like(entries, dtype=self.visits.dtype))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros((), device=obs.device), {}


BONUS = Count
