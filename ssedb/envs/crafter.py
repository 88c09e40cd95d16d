"""Crafter, which registers itself with the old Gym only, as `--env` can name it.

`ssedb train --env ssedb.envs.crafter:CrafterReward-v1`
"""

from __future__ import annotations

from typing import Any

import crafter
import gymnasium
import numpy as np


class Crafter(gymnasium.Env[np.ndarray, int]):
    """Crafter as Gymnasium has environments; `kwargs` are those of `crafter.Env`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._env = crafter.Env(**kwargs)
        shape = tuple(map(int, self._env.observation_space.shape))
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(self._env.action_space.n)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode on a map of its own."""
        if seed is not None:
            self._env = crafter.Env(**self._kwargs, seed=seed)
        return self._env.reset(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act; the end is a death if the discount is 0, else the episode's length."""
        frame, reward, done, info = self._env.step(int(action))
        dead = info["discount"] == 0
        info["player_pos"] = info["player_pos"].copy()  # Crafter's own array, step after step
        return frame, float(reward), done and dead, done and not dead, info


for name, reward in (("CrafterReward-v1", True), ("CrafterNoReward-v1", False)):
    gymnasium.register(name, Crafter, max_episode_steps=10_000, kwargs={"reward": reward})
