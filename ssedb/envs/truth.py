"""What really happened in a Rooms world: exact visit counts of states, actions, cells and rooms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ssedb.envs.rooms import World


class Truth:
    """Counts visits N(s) and choices N(s, a) over the life of an environment, and when each state was first seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        states, actions, device = world.num_states, world.num_actions, world.device
        self.choices = torch.zeros(states, actions, dtype=torch.int64, device=device)  # N(s, a)
        self.visits = torch.zeros(
            states, dtype=torch.int64, device=device
        )  # N(s), the episodes' first states included
        self.first_seen = torch.full(
            (states,), -1, dtype=torch.int64, device=device
        )  # steps of all worlds before it
        self.steps = 0
        self._processes = 1  # that have as many worlds each
        self.now = torch.zeros(0, dtype=torch.int64, device=device)  # the state each world is in
        self._merged = {
            "choices": self.choices.clone(),
            "visits": self.visits.clone(),
        }  # what all processes know

    def begin(self, ids: Tensor, where: Tensor | None = None) -> None:
        """Episodes begin in these states [N], everywhere or at these indices."""
        self.now = ids
        self._see(ids if where is None else ids[where])

    def act(self, actions: Tensor) -> None:
        """The worlds are about to take these actions."""
        self.choices.view(-1).scatter_add_(
            0, self.now * self.choices.shape[1] + actions, torch.ones_like(actions)
        )

    def arrive(self, ids: Tensor) -> None:
        """The actions led here."""
        self.steps += len(ids) * self._processes
        self.now = ids
        self._see(ids)

    def _see(self, ids: Tensor) -> None:
        self.visits.scatter_add_(0, ids, torch.ones_like(ids))
        first = self.first_seen[ids]
        self.first_seen[ids] = torch.where(first < 0, self.steps, first)

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:
        """Add what the worlds of other processes have seen since the last time; see `Env.merge`."""
        never = torch.iinfo(torch.int64).max
        first = gather(torch.where(self.first_seen < 0, never, self.first_seen))
        self._processes = len(first)
        if self._processes == 1:
            return
        for name, before in self._merged.items():
            counts = getattr(self, name)
            counts.copy_(before + gather(counts - before).sum(0))
            before.copy_(counts)
        first = first.amin(0)
        self.first_seen.copy_(torch.where(first == never, -1, first))

    @cached_property
    def reachable(self) -> Tensor:
        """Which states can be reached from the start at all, bool [states]."""
        return self._world.reachable()

    def metrics(self) -> dict[str, float]:
        """Shares are of what can be reached."""
        world, seen = self._world, self.visits > 0
        by_cell = self.visits.view(len(world.cells), -1).sum(1)
        rooms = int(world.room_of_cell.max()) + 1
        by_room = torch.zeros(rooms, dtype=torch.int64, device=world.device).index_add_(
            0, world.room_of_cell, by_cell
        )
        share = self.visits[seen].double() / self.visits.sum().clamp_min(1)
        return {
            "states_seen": float(seen.sum()),
            "states_share": float(seen.sum() / self.reachable.sum()),
            "cells_share": float(
                (by_cell > 0).sum() / self.reachable.view(len(world.cells), -1).any(1).sum()
            ),
            "rooms_share": float((by_room > 0).double().mean()),
            "visit_entropy": float(torch.special.entr(share).sum()),
            "last_first_visit": float(self.first_seen.max()),
        }

    def state_dict(self) -> dict[str, Any]:
        tensors = {
            name: getattr(self, name).clone() for name in ("choices", "visits", "first_seen", "now")
        }
        return {**tensors, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for name in ("choices", "visits", "first_seen", "now"):
            setattr(self, name, state[name].to(self._world.device).clone())
        self._merged = {name: getattr(self, name).clone() for name in self._merged}
