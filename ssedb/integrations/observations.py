"""Scale of observations: mean and std of the first steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssedb.integrations.scale import WINDOW
from ssedb.normalize import RunningMoments, scale_of

ENOUGH = 1024
"""Observations that fix the scale, if they are of `WINDOW` steps or more: neighbours are alike."""
LEAST_STD = 1.0
"""Floor of the pixels' std: a first rollout may show next to nothing."""


class ObservationScale:
    """Mean and std of all observations, until enough were counted to fix them.

    Attributes:
        fixed: whether more observations would change nothing.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device, fixed: bool) -> None:
        """Begin without observations.

        Args:
            shape: of an observation as the bonus takes it.
            device: where the observations are.
            fixed: whether the scale is fixed already.
        """
        self.fixed = fixed
        self._moments = RunningMoments(shape, torch.float64).to(device)
        self._steps = 0
        self._observations = 0

    def add(self, obs: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        """Count observations [T, N, *shape], batch by batch; return the mean and the std of all."""
        flat = obs.flatten(0, 1)
        for batch in flat.split(batch_size):
            self._moments.add(batch)
        self._steps += len(obs)
        self._observations += len(flat)
        self.fixed = self._steps >= WINDOW and self._observations >= ENOUGH
        return scale_of(self._moments, LEAST_STD)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return {
            "moments": self._moments.state_dict(),
            "steps": self._steps,
            "observations": self._observations,
            "fixed": self.fixed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state."""
        self._moments.load_state_dict(state["moments"])
        self._steps = state["steps"]
        self._observations = state["observations"]
        self.fixed = state["fixed"]
