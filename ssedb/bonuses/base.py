"""The contract of an intrinsic reward: it knows transitions, nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ssedb.normalize import ObsNorm


@dataclass(frozen=True)
class NoOptions:
    """A bonus without settings."""

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        """The settings that the names imply."""
        return {}


class Bonus(nn.Module, ABC):
    """An intrinsic reward and the model behind it.

    Observations are stacks, uint8 [B, C, H, W]; actions are int64 [B]. A subclass lives in a file of its own in this
    folder, is named in that file's `BONUS`, and is built as `cls(obs_shape, num_actions, options)`.
    """

    Options: type[Any] = NoOptions

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.normalize = ObsNorm(obs_shape)

    @abstractmethod
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        """The reward of each transition, float32 [B], without gradient."""

    @abstractmethod
    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What to minimise, a scalar with gradient, and figures for the log.

        A mask, bool [B], names the transitions that count; the others are pairs across an episode's end.
        """

    def after_step(self) -> None:
        """Called after each optimiser step."""

    def after_epoch(self) -> None:
        """Called after each pass over a rollout."""

    def features(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """The representation behind the reward, [B, D], without gradient; None if there is none."""
        return None

    def diagnostics(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> dict[str, Tensor]:
        """Slower figures for the log, asked for once a rollout on one minibatch."""
        return {}
