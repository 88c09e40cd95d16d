"""Where a run on Rooms has been, and what its bonus pays where: by cell, about fifty times along training."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ssedb.analysis.probe import Transitions, draw_transitions, rewards_of
from ssedb.envs.rooms.env import RoomsEnv
from ssedb.envs.rooms.world import World
from ssedb.noises import noise_of
from ssedb.runs.metrics import MAPS

if TYPE_CHECKING:
    from ssedb.trainer import Trainer

SNAPSHOTS = 50
PER_CELL = 3
"""Transitions asked about per cell of the map, on average."""


class MapLog:
    """Appends a line to `maps.jsonl` whenever another fiftieth of the run is done; on other environments than Rooms none."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._path, self._trainer = folder / MAPS, trainer
        source = getattr(trainer.env, "env", None)
        self._env = source if isinstance(source, RoomsEnv) and trainer.engine.rank == 0 else None
        if self._env is None:
            return
        world, config = self._env.world, trainer.config
        count, noise = PER_CELL * len(world.cells), noise_of(config)
        self._data = draw_transitions(world, None, count, 1, noise, seed=1)
        self._part = -1
        if self._path.exists():  # a line that was cut goes: the next one must not be joined to it
            os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)

    def record(self) -> None:
        """Takes the maps if another part of the run is done. The run does not notice: no randomness of its own is used."""
        if self._env is None or self._parts() == self._part:
            return
        self._part = self._parts()
        trainer, cells = self._trainer, len(self._env.world.cells)
        # Setting a random state back is not free where CUDA graphs hold it, and most bonuses draw nothing.
        devices = [trainer.device] if trainer.device.type == "cuda" else []
        with nullcontext() if trainer.bonus.deterministic else torch.random.fork_rng(devices):
            paid = rewards_of(trainer.bonus, self._data, 0) if trainer.bonus.pays else None
        row = {
            "steps": trainer.steps,
            "visits": self._env.visit_counts.visits.view(cells, -1).sum(1).tolist(),
            "bonus": None if paid is None else mean_by_cell(paid, self._data, self._env.world),
        }
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _parts(self) -> int:
        return self._trainer.steps * SNAPSHOTS // self._trainer.config.steps


def mean_by_cell(rewards: torch.Tensor, data: Transitions, world: World) -> list[float | None]:
    """Return the mean reward of the transitions from each cell; None if there is no finite one."""
    cell, rewards = (data.states // world.scenes_per_cell).cpu(), rewards.cpu()
    means = [rewards[cell == i].mean() for i in range(len(world.cells))]
    return [float(f"{mean:.5g}") if mean.isfinite() else None for mean in means]
