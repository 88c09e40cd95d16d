"""Exact visit counts of a Rooms world: states, state-action pairs, cells and rooms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ssedb.envs.rooms.world import World


class VisitCounts:
    """Visits of each state and of each state-action pair over the life of an environment.

    Attributes:
        visits: int64 [states], N(s); the first states of episodes count.
        pair_visits: int64 [states, actions], N(s, a).
        first_seen: int64 [states], steps of all environments before the first visit, or -1.
        now: int64 [N], the state of each environment.
    """

    def __init__(self, world: World, num_envs: int) -> None:
        self._world = world
        self._processes = 1  # that have as many environments each
        zeros = partial(torch.zeros, dtype=torch.int64, device=world.device)
        self.pair_visits = zeros(world.num_states, world.num_actions)
        self.visits = zeros(world.num_states)
        self.first_seen = zeros(world.num_states) - 1
        self._start = int(world.state_ids(world.start(1)))
        self.now = zeros(num_envs) + self._start
        self._steps = zeros(())
        self._remember_merged()

    @property
    def steps(self) -> int:
        """Steps of all environments so far, those of other processes included."""
        return int(self._steps)

    def begin(self) -> None:
        """Count that an episode begins in every environment; the first state is the same in all."""
        self.now.fill_(self._start)
        self.visits[self._start] += len(self.now)
        if self.first_seen[self._start] < 0:
            self.first_seen[self._start] = self._steps

    def add(self, actions: Tensor, reached: Tensor, dones: Tensor) -> None:
        """Count a step.

        Args:
            actions: int64 [N], taken in the states `now`.
            reached: int64 [N], the states that the actions have led to.
            dones: bool [N], the environments in which the next episode begins.
        """
        one = torch.ones_like(actions)
        pairs = self.now * self.pair_visits.shape[1] + actions
        self.pair_visits.view(-1).scatter_add_(0, pairs, one)
        self._steps += len(reached) * self._processes
        self.visits.scatter_add_(0, reached, one)
        first = self.first_seen[reached]
        self.first_seen[reached] = torch.where(first < 0, self._steps, first)
        self.visits[self._start].add_(dones.sum())
        self.now.copy_(reached.masked_fill(dones, self._start))

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:
        """Add what the environments of other processes have seen since the last time.

        Args:
            gather: stacks a tensor of each process, [processes, ...].
        """
        never = torch.iinfo(torch.int64).max
        first = gather(torch.where(self.first_seen < 0, never, self.first_seen))
        self._processes = len(first)
        if self._processes == 1:
            return
        for name, before in self._merged.items():
            counts = getattr(self, name)
            counts.copy_(before + gather(counts - before).sum(0))
        self._remember_merged()
        first = first.amin(0)
        self.first_seen.copy_(torch.where(first == never, -1, first))

    def _remember_merged(self) -> None:
        """Keep what all processes know."""
        self._merged = {name: getattr(self, name).clone() for name in ("pair_visits", "visits")}

    @cached_property
    def reachable(self) -> Tensor:
        """Which states can be reached from the start at all, bool [states]."""
        return self._world.reachable()

    def metrics(self) -> dict[str, float]:
        """Return the coverage so far; shares are of what can be reached."""
        world, seen = self._world, self.visits > 0
        cells, rooms = len(world.cells), int(world.room_of_cell.max()) + 1
        by_cell = self.visits.view(cells, -1).sum(1)
        by_room = by_cell.new_zeros(rooms).index_add_(0, world.room_of_cell, by_cell)
        share = self.visits[seen].double() / self.visits.sum().clamp_min(1)
        return {
            "states_seen": float(seen.sum()),
            "states_share": float(seen.sum() / self.reachable.sum()),
            "cells_share": float((by_cell > 0).sum() / self.reachable.view(cells, -1).any(1).sum()),
            "rooms_share": float((by_room > 0).double().mean()),
            "visit_entropy": float(torch.special.entr(share).sum()),
            "last_first_visit": float(self.first_seen.max()),
        }

    KEPT = ("pair_visits", "visits", "first_seen", "now")

    def state_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name).clone() for name in self.KEPT}, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps.fill_(state["steps"])
        for name in self.KEPT:
            getattr(self, name).copy_(state[name])
        self._remember_merged()
