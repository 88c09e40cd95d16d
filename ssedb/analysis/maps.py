"""Where a run on Rooms has been, and what its bonus pays where: by cell, about fifty times along training."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ssedb.analysis.probe import Transitions, draw_transitions, rewards_of
from ssedb.envs.rooms.env import RoomsEnv
from ssedb.envs.rooms.world import World
from ssedb.noises import noise_of
from ssedb.runs.files import writing

if TYPE_CHECKING:
    from ssedb.trainer import Trainer

SNAPSHOTS = 50
PER_CELL = 3
"""Transitions asked about per cell of the map, on average."""
FILE = "maps.jsonl"


class MapLog:
    """Appends a line to `maps.jsonl` whenever another fiftieth of the run is done; on other environments than Rooms none."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._path, self._trainer = folder / FILE, trainer
        source = getattr(trainer.env, "env", None)
        self._env = source if isinstance(source, RoomsEnv) and trainer.engine.rank == 0 else None
        if self._env is None:
            return
        world, config = self._env.world, trainer.config
        count, noise = PER_CELL * len(world.cells), noise_of(config)
        self._data = draw_transitions(world, None, count, 1, noise, seed=1)
        self._part = -1

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
        with writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _parts(self) -> int:
        return self._trainer.steps * SNAPSHOTS // self._trainer.config.steps


def mean_by_cell(rewards: torch.Tensor, data: Transitions, world: World) -> list[float | None]:
    """The mean reward of the transitions from each cell; None where there is none."""
    cell, rewards = (data.states // world.scenes_per_cell).cpu(), rewards.cpu()
    return [
        _rounded(rewards[cell == i].mean()) if (cell == i).any() else None
        for i in range(len(world.cells))
    ]


def _rounded(value: torch.Tensor) -> float | None:
    """Return a number of five digits; None for NaN and Inf, which JSON does not have."""
    return float(f"{value:.5g}") if value.isfinite() else None


def read_maps(run: Path) -> list[dict[str, Any]]:
    """A run's snapshots in order; what a resumed run took again replaces the first try, torn lines are left out."""
    rows: list[dict[str, Any]] = []
    try:
        lines = (run / FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return rows
    for line in lines:
        try:
            row = json.loads(line)
            rows = [*(r for r in rows if r["steps"] < row["steps"]), row]
        except (ValueError, TypeError, KeyError):
            continue
    return rows
