"""Rooms as N environments of one world with exact visit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ssedb.envs.base import Env, Step
from ssedb.envs.rooms.visits import VisitCounts
from ssedb.envs.rooms.world import State, World

STAGGER = 16
"""Groups of environments whose episodes end at different times."""


class RoomsEnv(Env):
    """N environments of one world.

    Doors on the way to the deepest room are locked. `INTERACT` takes a key from the floor, opens a
    door beside the agent if its key is held, and takes the treasure. Movers walk to and fro and
    block the way.

    All episodes begin in the same state and end after a number of steps: at the same time unless
    `stagger` has spread them. The reward (keys, doors, treasure) is for measuring.

    A step waits for nothing and changes tensors in their place, so a CUDA graph may hold it.
    """

    num_actions: int
    capturable = True
    must_continue = True

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
        self.side = self.world.side
        self.episode = min(max_steps or self.world.episode, self.world.episode)
        self._reached, self._rewards = self.world.transitions
        self.visit_counts = VisitCounts(self.world, num_envs)
        self._age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    @property
    def state(self) -> State:
        """True states of the environments."""
        return self.world.state_of(self.visit_counts.now)

    def reset(self) -> Tensor:
        self._age.zero_()
        self.visit_counts.begin()
        return self.world.frames_of(self.visit_counts.now)

    def stagger(self) -> None:
        group = torch.arange(self.num_envs, device=self.device) % STAGGER
        self._age.copy_(group * self.episode // STAGGER)

    def step(self, actions: Tensor) -> Step:
        before = self.visit_counts.now
        reached, rewards = self._reached[before, actions], self._rewards[before, actions]
        self._age += 1
        dones = self._age >= self.episode
        self._age.masked_fill_(dones, 0)
        self.visit_counts.add(actions, reached, dones)
        frames = self.world.frames_of(self.visit_counts.now)
        return Step(frames, rewards, dones, final_frames=lambda: self.world.frames_of(reached))

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
        return {"age": self._age.clone(), "visit_counts": self.visit_counts.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._age.copy_(state["age"])
        self.visit_counts.load_state_dict(state["visit_counts"])
