"""Scale of intrinsic rewards for environments of any number."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ssedb.errors import ConfigError
from ssedb.normalize import RewardNorm


class RewardScale:
    """Std of discounted sums of rewards, by which rewards are divided; or no scale at all."""

    def __init__(self, kind: str, gamma: float, device: torch.device) -> None:
        """Begin without rewards.

        Args:
            kind: std over the whole `run`, over `recent` rollouts, or `none`.
            gamma: discount of the sums.
            device: where the rewards are.
        """
        if kind not in ("run", "recent", "none"):
            raise ConfigError(f"reward_scale={kind!r}: use run, recent or none")
        # One sum broadcasts: the first rollout tells how many environments there are.
        norm = RewardNorm(1, gamma, device, recent=kind == "recent")
        self._norm = None if kind == "none" else norm
        self._counted = False

    def add(self, raw: Tensor) -> Tensor:
        """Count the rewards of a rollout, [T, N], and divide them by the scale."""
        self._counted = True
        return _added(self._norm, raw)

    def after(self, raw: Tensor) -> Tensor:
        """Return what `add` would, and change nothing."""
        return _added(copy.deepcopy(self._norm), raw)

    def divide(self, raw: Tensor) -> Tensor:
        """Divide rewards by the scale as it stands; return zeros before anything counted."""
        if self._norm is None:
            return raw
        if not self._counted:
            return torch.zeros_like(raw)
        return raw / self._norm.moments.variance.sqrt().clamp_min(1e-8).to(raw.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        norm = None if self._norm is None else self._norm.state_dict()
        return {"norm": norm, "counted": self._counted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of the same kind."""
        if self._norm is not None:
            self._norm.load_state_dict(state["norm"])
        self._counted = state["counted"]


def _added(norm: RewardNorm | None, raw: Tensor) -> Tensor:
    if norm is None:
        return raw
    if len(norm.sums) not in (1, raw.shape[1]):  # other environments begin other sums
        norm.sums = norm.sums.new_zeros(1)
    return norm(raw)
