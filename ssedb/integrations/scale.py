"""Scale of intrinsic rewards for environments of any number and rollouts of any length."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ssedb.errors import ConfigError
from ssedb.normalize import RecentVariance, RunningMoments, discounted_sums

LEAST_STD = 1e-6
"""Share of the sums below which their std is rounding: the rows of a batch may differ by that."""
WINDOW = 128
"""Fewest steps whose sums vary enough to tell a recent variance; a few neighbours are alike."""


class RewardScale:
    """Std of discounted sums of rewards, by which rewards are divided; or no scale at all.

    As long as all sums are equal, there is no scale, and the rewards are 0. `RewardNorm` of our
    trainer needs no such rule: every rollout counts there before it is divided.

    Attributes:
        counted: steps whose rewards were counted.
    """

    def __init__(self, kind: str, gamma: float, device: torch.device) -> None:
        """Begin without rewards.

        Args:
            kind: std over the whole `run`, over `recent` rollouts, or `none`.
            gamma: discount of the sums.
            device: where the rewards are.
        """
        self._kind = kind
        self._gamma = gamma
        recent = kind == "recent"
        moments = RecentVariance() if recent else RunningMoments(dtype=torch.float64)
        self._moments: RecentVariance | RunningMoments = moments.to(device)
        self._window = WINDOW if recent else 1
        # One sum broadcasts: the first rollout tells how many environments there are.
        self._sums = torch.zeros(1, dtype=torch.float64, device=device)
        self._waiting = self._sums[:0]  # sums of `_steps` steps that the moments do not have yet
        self._steps = 0
        self.counted = 0

    def add(self, raw: Tensor) -> Tensor:
        """Count the rewards of a rollout, [T, N], and divide them by the scale."""
        self.counted += len(raw)
        if self._kind == "none":
            return raw
        if len(self._sums) not in (1, raw.shape[1]):  # other environments begin other sums
            self._sums = self._sums.new_zeros(1)
        sums = discounted_sums(raw, self._sums, self._gamma)
        self._sums = sums[-1].clone()
        self._waiting = torch.cat([self._waiting, sums.flatten()])
        self._steps += len(raw)
        if self._steps >= self._window:
            self._moments.add(self._waiting)
            self._waiting = self._sums[:0]
            self._steps = 0
        return self.divide(raw)

    def after(self, raw: Tensor) -> Tensor:
        """Return what `add` would, and change nothing."""
        return copy.deepcopy(self).add(raw)

    def divide(self, raw: Tensor) -> Tensor:
        """Divide rewards by the scale as it stands; return zeros while all sums are equal."""
        if self._kind == "none":
            return raw
        variance = self._moments.variance
        if self._steps:  # before the first window is full, what there is
            first = self._waiting.var(correction=0)
            variance = torch.where(self._moments.count > 0, variance, first)
        std = variance.sqrt().to(raw.dtype)
        return torch.where(std > LEAST_STD * self._sums.abs().amax(), raw / std, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return {
            "moments": self._moments.state_dict(),
            "sums": self._sums,
            "waiting": self._waiting,
            "steps": self._steps,
            "counted": self.counted,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of the same kind."""
        if "counted" not in state:
            raise ConfigError("the state was saved by an older ssedb; train the bonus anew")
        self._moments.load_state_dict(state["moments"])
        self._sums = state["sums"].to(self._sums.device)
        self._waiting = state["waiting"].to(self._sums.device)
        self._steps = state["steps"]
        self.counted = state["counted"]
