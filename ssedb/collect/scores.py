"""Scores: extrinsic returns of episodes, which the agent does not see."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

LAST = 100


class Scores:
    """Sums of rewards of finished episodes, over N environments."""

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros(num_envs)
        self._last: deque[float] = deque(maxlen=LAST)
        self._best: float | None = None
        self._episodes = 0

    def add(self, rewards: np.ndarray, dones: np.ndarray) -> dict[str, Any]:
        """Add a rollout [T, N]; return metrics, None where no episode has ended yet."""
        ended: list[float] = []
        for reward, done in zip(rewards, dones, strict=True):
            self._running += reward
            if done.any():
                ended += self._running[done].tolist()
                self._running[done] = 0
        self._last.extend(ended)
        self._episodes += len(ended)
        if ended:
            self._best = max([*ended, self._best] if self._best is not None else ended)
        rollout = {"score_rollout": _mean(ended), "score_rollout_best": max(ended, default=None)}
        return {**self.summary(), **rollout}

    def summary(self) -> dict[str, Any]:
        """Return the metrics of all episodes so far."""
        return {"score": _mean(self._last), "score_best": self._best, "episodes": self._episodes}

    def forget_unfinished(self) -> None:
        """Drop the sums of episodes under way."""
        self._running[:] = 0

    def state_dict(self) -> dict[str, Any]:
        """Return sums of episodes under way, and scores."""
        counted = {"best": self._best, "episodes": self._episodes}
        return {"running": self._running.tolist(), "last": list(self._last), **counted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._running[:] = state["running"]
        self._last = deque(state["last"], maxlen=LAST)
        self._best, self._episodes = state["best"], state["episodes"]


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
