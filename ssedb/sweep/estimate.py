"""Cost of a plan on this machine, estimated from a few updates of each bonus."""

from __future__ import annotations

import io
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ssedb import terminal
from ssedb.config import TrainConfig
from ssedb.envs.names import atari_game
from ssedb.runs.checkpoint import KEEP
from ssedb.sweep.grid import Grid, Planned
from ssedb.sweep.plan import is_finished, share_of_cores, threads_of
from ssedb.sweep.worker import cores
from ssedb.terminal import clock, plural

SHORT_ROLLOUT = 16
"""Steps of a calibration's rollout; the time of a step hardly depends on it."""
SHORT_LOOK = 512
"""Steps of a calibration's random agent."""
TENSORBOARD = 1.5
"""Bytes of the TensorBoard log for each byte of the JSONL."""


@dataclass(frozen=True)
class Cost:
    """Cost of one kind of run: seconds (alone on its share of the cores), and bytes on disk."""

    start: float
    """Before the first step: making the environments, and the random agent's look around."""
    step: float
    checkpoint: int
    row: int

    def seconds(self, config: TrainConfig) -> float:
        """Return the time of a run."""
        return self.start + config.steps * self.step

    def disk(self, config: TrainConfig) -> float:
        """Return the bytes of a run on disk."""
        return (
            KEEP * self.checkpoint
            + (1 + TENSORBOARD) * self.row * config.steps / config.rollout_size
        )


def calibrate(config: TrainConfig) -> Cost:
    """Time one update after others that warm up (on a GPU, capture graphs); write nothing."""
    from ssedb.runs.blame import blaming

    with blaming(None, lambda: "in the short run that measures its speed", config=config):
        return _calibrate(config)


def _calibrate(config: TrainConfig) -> Cost:
    import torch

    from ssedb.collect.environments import look_around
    from ssedb.trainer import Trainer

    short = replace(config, rollout_steps=min(SHORT_ROLLOUT, config.rollout_steps))
    times: list[float] = []  # of the random agent, from when its environments are made
    began = time.perf_counter()
    seen = look_around(
        replace(short, obs_norm_steps=SHORT_LOOK),
        on_step=lambda done, steps: times.append(time.perf_counter()),
    )
    trainer = Trainer(short)
    made = time.perf_counter() - began
    start = made + (times[-1] - times[0]) * (config.obs_norm_steps / SHORT_LOOK - 1)
    try:
        trainer.fit_observations(seen)
        for _ in range(4 if trainer.engine.uses_graphs else 1):
            trainer.iterate()
        began = time.perf_counter()
        row = trainer.iterate() or trainer.finish()
        step = (time.perf_counter() - began) / short.rollout_size
        buffer = io.BytesIO()
        torch.save(trainer.state_dict(), buffer)
    finally:
        trainer.close()
    return Cost(start, step, buffer.tell(), len(json.dumps(row)))


def print_estimate(grid: Grid, root: Path, jobs: int | None) -> None:
    """Print the plan as a table: what there is to do, how long it takes, how much disk it needs."""
    import torch

    missing = [run for run in grid.runs if not is_finished(run, grid.probe)]
    torch.set_num_threads(threads_of(root, share_of_cores(grid, jobs)))
    console = terminal.console()
    seconds, disk = _print_kinds(console, missing)
    console.print(
        f"{grid.name}: {plural(len(grid.runs), 'run')} in {root}, "
        f"{len(grid.runs) - len(missing)} finished, {len(missing)} to do",
        soft_wrap=True,
    )
    if not missing:
        return
    steps = [run.config.steps for run in missing]
    console.print(f"steps        {sum(steps):,} (the longest run {max(steps):,})")
    shared = torch.cuda.is_available()
    where = "one GPU shared" if shared else f"{cores()} cores"
    at_a_time = min(jobs or cores(), len(missing))
    abreast = f"{plural(at_a_time, 'run')} at a time on {where}"
    console.print(f"time         about {clock(seconds / at_a_time)}, {abreast}")
    if shared:
        console.print(
            f"             if they do not slow each other down; {clock(seconds)} one after another"
        )
    console.print(f"disk         about {decimal(int(disk))}")
    if grid.probe:
        console.print("probe        some seconds more for each run")


def _print_kinds(console: Console, missing: list[Planned]) -> tuple[float, float]:
    """Calibrate and print each kind of run; return the seconds and the bytes of all runs."""
    kinds: dict[tuple[str, str], list[Planned]] = {}
    for run in missing:
        # All Atari games cost about the same.
        family = "atari" if atari_game(run.config.env) else run.config.env
        kinds.setdefault((family, run.config.bonus), []).append(run)
    headers = ("env", "bonus", "runs to do", "steps", "steps/s of one")
    table = Table(*headers, "hours, one at a time", "disk")
    total = disk = 0.0
    for (family, bonus), runs in kinds.items():
        print(f"calibrating {bonus} on {runs[0].config.env}", file=sys.stderr, flush=True)
        cost = calibrate(runs[0].config)
        steps = sum(run.config.steps for run in runs)
        seconds = sum(cost.seconds(run.config) for run in runs)
        space = sum(cost.disk(run.config) for run in runs)
        rate, hours = f"{1 / cost.step:,.0f}", f"{seconds / 3600:,.2f}"
        table.add_row(family, bonus, str(len(runs)), f"{steps:,}", rate, hours, decimal(int(space)))
        total += seconds
        disk += space
    if missing:
        terminal.print_table(table, console)
    return total, disk
