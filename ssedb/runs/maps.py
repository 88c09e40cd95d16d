"""Visits and mean bonus of every cell of Rooms, about fifty times along training."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ssedb.envs.rooms.env import RoomsEnv
from ssedb.envs.rooms.world import World
from ssedb.noises import noise_of
from ssedb.runs.files import writing
from ssedb.runs.metrics import MAPS
from ssedb.transitions import Transitions, draw_transitions, rewards_of

if TYPE_CHECKING:
    from ssedb.trainer import Trainer

SNAPSHOTS = 50
PER_CELL = 3
"""Transitions per cell from which the mean bonus is computed, on average."""


class MapLog:
    """Writer of `maps.jsonl`: a line for every fiftieth of a run on Rooms, none elsewhere."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._path, self._trainer = folder / MAPS, trainer
        source = getattr(trainer.env, "env", None)
        self._env = (
            source if isinstance(source, RoomsEnv) and trainer.engine.group.rank == 0 else None
        )
        if self._env is None:
            return
        world, config = self._env.world, trainer.config
        count, noise = PER_CELL * len(world.cells), noise_of(config)
        self._data = draw_transitions(world, None, count, 1, noise, seed=1)
        self._snapshot = -1
        if self._path.exists():  # a line that was cut goes: the next one must not be joined to it
            os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)

    def record(self) -> None:
        """Append a line if another fiftieth of the run is done; keep torch's random state."""
        if self._env is None or self._current() == self._snapshot:
            return
        self._snapshot = self._current()
        trainer, cells = self._trainer, len(self._env.world.cells)
        # Restoring a random state costs time where CUDA graphs hold it, and most bonuses draw
        # nothing.
        devices = [trainer.device] if trainer.device.type == "cuda" else []
        with nullcontext() if trainer.bonus.deterministic else torch.random.fork_rng(devices):
            bonus = trainer.bonus
            rewards = rewards_of(bonus, self._data, 0) if bonus.gives_reward else None
        row = {
            "steps": trainer.steps,
            "visits": self._env.visit_counts.visits.view(cells, -1).sum(1).tolist(),
            "bonus": None
            if rewards is None
            else mean_by_cell(rewards, self._data, self._env.world),
        }
        with writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _current(self) -> int:
        return self._trainer.steps * SNAPSHOTS // self._trainer.config.steps


def mean_by_cell(rewards: torch.Tensor, data: Transitions, world: World) -> list[float | None]:
    """Return the mean reward of the transitions from each cell.

    Args:
        rewards: [M].
        data: the M transitions.
        world: the world of Rooms.

    Returns:
        A mean for each cell; None for a cell without transitions, or whose mean is not finite.
    """
    cell, rewards = (data.states // world.scenes_per_cell).cpu(), rewards.cpu()
    means = [rewards[cell == i].mean() for i in range(len(world.cells))]
    return [float(f"{mean:.5g}") if mean.isfinite() else None for mean in means]
