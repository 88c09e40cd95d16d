"""Rooms as an environment: N worlds of one layout, and their exact visit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.envs.base import Env, Step
from ssedb.envs.rooms.visits import VisitCounts
from ssedb.envs.rooms.world import State, World

STAGGER = 16
"""Groups of worlds whose episodes end at different times."""


class RoomsEnv(Env):
    """N worlds of one layout.

    Doors on the way to the deepest room are locked. `INTERACT` takes a key from the floor, opens a
    door beside the agent if its key is held, and takes the treasure. Movers walk to and fro and
    block the way.

    All episodes begin in the same state and end after a number of steps: at the same time unless
    `stagger` has spread them. The reward (keys, doors, treasure) is for measuring.
    """

    def __init__(
        self,
        num_envs: int,
        size: str = "medium",
        *,
        layout_seed: int = 0,
        device: torch.device | str = "cpu",
        max_steps: int | None = None,
    ) -> None:
        self.world = World(size, layout_seed, device)
        self.num_envs, self.num_actions = num_envs, self.world.num_actions
        self.device = self.world.device
        self.episode = min(max_steps or self.world.episode, self.world.episode)
        self.state = self.world.start(num_envs)
        self.visit_counts = VisitCounts(self.world)
        # On the host, so that no step waits for the device.
        self._age = np.zeros(num_envs, np.int64)
        self._never = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    def reset(self) -> Tensor:
        self.state = self.world.start(self.num_envs)
        self._age = np.zeros(self.num_envs, np.int64)
        self.visit_counts.begin(self.world.state_ids(self.state))
        return self.world.frames(self.state)

    def stagger(self) -> None:
        self._age = np.arange(self.num_envs) % STAGGER * self.episode // STAGGER

    def step(self, actions: Tensor) -> Step:
        self.visit_counts.act(actions)
        self.state, rewards = self.world.move(self.state, actions)
        self.visit_counts.arrive(self.world.state_ids(self.state))
        self._age += 1
        frames = self.world.frames(self.state)
        ended = np.flatnonzero(self._age >= self.episode)
        if not len(ended):
            return Step(frames, rewards, self._never)
        self._age[ended] = 0
        index = torch.from_numpy(ended).to(self.device)
        fresh = self.world.start(len(ended))
        self.state = State(
            *(rows.index_copy(0, index, new) for rows, new in zip(self.state, fresh, strict=True))
        )
        self.visit_counts.begin(self.world.state_ids(self.state), index)
        dones = self._never.index_fill(0, index, True)
        return Step(self.world.frames(self.state), rewards, dones, final_frames=lambda: frames)

    def true_states(self) -> Tensor:
        return self.visit_counts.now

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:
        self.visit_counts.merge(gather)

    def metrics(self) -> dict[str, float]:
        return self.visit_counts.metrics()

    @property
    def restorable(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.state._asdict(),
            "age": torch.from_numpy(self._age.copy()),
            "visit_counts": self.visit_counts.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = State(*(state[name].to(self.device).clone() for name in State._fields))
        self._age = state["age"].cpu().numpy().copy()
        self.visit_counts.load_state_dict(state["visit_counts"])
