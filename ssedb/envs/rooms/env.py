"""Rooms as an environment: N worlds of one layout with exact visit counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
        self._start = self.world.start(num_envs)
        self.state = self.world.start(num_envs)
        self.visit_counts = VisitCounts(self.world, num_envs)
        self._age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def reset(self) -> Tensor:
        self._set_state(self._start)
        self._age.zero_()
        self.visit_counts.begin(self.world.state_ids(self.state))
        return self.world.frames(self.state)

    def stagger(self) -> None:
        group = torch.arange(self.num_envs, device=self.device) % STAGGER
        self._age.copy_(group * self.episode // STAGGER)

    def step(self, actions: Tensor) -> Step:
        self.visit_counts.act(actions)
        moved, rewards = self.world.move(self.state, actions)
        self.visit_counts.arrive(self.world.state_ids(moved))
        self._age += 1
        dones = self._age >= self.episode
        self._age.masked_fill_(dones, 0)
        self._set_state(State(*map(partial(_where, dones), self._start, moved)))
        self.visit_counts.begin(self.world.state_ids(self.state), dones)
        frames = self.world.frames(self.state)
        return Step(frames, rewards, dones, final_frames=lambda: self.world.frames(moved))

    def _set_state(self, state: State) -> None:
        for rows, new in zip(self.state, state, strict=True):
            rows.copy_(new)

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
            **{name: rows.clone() for name, rows in self.state._asdict().items()},
            "age": self._age.clone(),
            "visit_counts": self.visit_counts.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._set_state(State(*(state[name] for name in State._fields)))
        self._age.copy_(state["age"])
        self.visit_counts.load_state_dict(state["visit_counts"])


def _where(dones: Tensor, ended: Tensor, others: Tensor) -> Tensor:
    """Choose rows [N, ...] by dones [N]."""
    return torch.where(dones.view(-1, *[1] * (ended.ndim - 1)), ended, others)
