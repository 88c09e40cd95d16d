"""Runs side by side on one machine: agent steps per second of all, by how many run at a time.

    nvidia-cuda-mps-control -d                        # lets processes share the GPU
    OMP_NUM_THREADS=1 python benchmarks/packing.py experiments/atari.toml --runs 2 4 8 12

The first runs of the grid begin, each in a process of its own as under `ssedb sweep`, and warm up.
Then as many as `--runs` says train for `--seconds` while the others wait. `best` is the smallest
number within 3% of the most steps: runs that end sooner are sooner a table. As under a sweep of
several runs at a time, they sleep while they wait for a GPU; `--spin` lets them keep their cores
busy instead. `cores` counts what the runs' own processes use, and not those that step environments.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import ssedb
from ssedb.cli.sweep import parse_override
from ssedb.collect.environments import look_around
from ssedb.engine.host import sleep_while_waiting
from ssedb.sweep.grid import read_grid
from ssedb.sweep.worker import memory_of_this_process
from ssedb.trainer import Trainer

WARM = 2
"""Iterations after which graphs are captured and kernels compiled."""
CLOSE = 0.03
"""Share of the most steps that is not worth another run at a time."""
SETTLE = 2.0
"""Seconds that runs need to stop or go on."""
POLL = 0.02
"""Seconds between two looks at what has changed."""
GRACE = 30.0
"""Seconds for all runs to end."""


class Stop(Exception):
    """Raised within a run that is to end."""


class Gate:
    """Counter of a run's steps that holds the run while it is not its turn."""

    def __init__(self, number: int, steps: Any, busy: Any, allowed: Any) -> None:
        self.number, self.steps, self.busy, self.allowed = number, steps, busy, allowed

    def __call__(self, steps: int) -> None:
        """Count, and wait while fewer runs are allowed; raise Stop at the end."""
        self.steps[self.number], self.busy[self.number] = steps, time.process_time()
        while self.allowed.value <= self.number:
            if self.allowed.value < 0:
                raise Stop
            time.sleep(POLL)


def run(config: ssedb.TrainConfig, spin: bool, gate: Gate, ready: Any, needs: Any) -> None:
    """Train until told to stop; say when warm, and how much memory it takes."""
    if not spin:
        sleep_while_waiting()
    seen = look_around(dataclasses.replace(config, obs_norm_steps=512))
    trainer = Trainer(config, on_step=gate)
    trainer.fit_observations(seen)
    try:
        while True:
            trainer.iterate()
            if trainer.updates == WARM:
                needs.put(memory_of_this_process(config.device))
                ready.release()
    except Stop:
        trainer.engine.synchronize()  # MPS wants its clients to end with nothing queued
        os._exit(0)  # without waiting for the emulators' threads


def measure(
    configs: list[ssedb.TrainConfig], numbers: list[int], seconds: float, spin: bool
) -> list[dict[str, Any]]:
    """Return a row for each number of runs at a time."""
    context = multiprocessing.get_context("spawn")
    steps = context.Array("q", len(configs), lock=False)
    busy = context.Array("d", len(configs), lock=False)
    allowed = context.Value("q", len(configs), lock=False)
    ready, needs = context.Semaphore(0), context.Queue()
    began = time.monotonic()
    runs = [
        context.Process(
            target=run, args=(config, spin, Gate(i, steps, busy, allowed), ready, needs)
        )
        for i, config in enumerate(configs)
    ]
    rows = []
    try:
        for process in runs:
            process.start()
        warm = 0
        while warm < len(runs):
            warm += ready.acquire(timeout=1)
            if any(process.exitcode for process in runs):
                raise SystemExit("a run failed; its error is above")
        memory = [needs.get() for _ in runs]
        need = {"host": max(m.host for m in memory), "gpu": max(m.gpu for m in memory)}
        print(
            f"warm after {time.monotonic() - began:.0f} s; a run needs at most "
            f"{need['host'] / 2**30:.1f} GiB and {need['gpu'] / 2**30:.1f} GiB of the GPU\n\n"
            "| runs at a time | steps/s in all | steps/s of one | minutes for all | cores |\n"
            "|---|---|---|---|---|"
        )
        for number in sorted(numbers, reverse=True):
            allowed.value = number
            time.sleep(SETTLE)
            before, worked, since = list(steps), sum(busy), time.monotonic()
            time.sleep(seconds)
            while list(steps) == before:
                time.sleep(POLL)
            passed = time.monotonic() - since
            rate, cores = (sum(steps) - sum(before)) / passed, (sum(busy) - worked) / passed
            rows.append({"runs": number, "rate": rate, "cores": cores, **need})
            minutes = number * configs[0].steps / rate / 60
            cells = f"{rate:,.0f} | {rate / number:,.0f} | {minutes:.1f} | {cores:.1f}"
            print(f"| {number} | {cells} |", flush=True)
    finally:
        allowed.value = -1
        limit = time.monotonic() + GRACE
        for process in runs:
            process.join(max(0.1, limit - time.monotonic()))
            process.kill()
    return rows


def best_of(rows: list[dict[str, Any]]) -> int:
    """Return the smallest number of runs whose rate is close to the highest."""
    most = max(row["rate"] for row in rows)
    return min(row["runs"] for row in rows if row["rate"] >= (1 - CLOSE) * most)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grid", type=Path)
    parser.add_argument("--set", nargs="+", default=[], help="as in `ssedb sweep`")
    parser.add_argument("--runs", type=int, nargs="+", default=[2, 4, 8, 12])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--spin", action="store_true", help="keep cores busy while waiting")
    parser.add_argument("--out", type=Path, help="write rows and best as JSON")
    options = parser.parse_args()
    try:
        overrides = dict(map(parse_override, options.set)) | {"device": options.device}
        configs = [planned.config for planned in read_grid(options.grid, None, overrides).runs]
    except ssedb.ConfigError as error:
        parser.error(str(error))
    most = max(options.runs)
    if not 0 < min(options.runs) <= most <= len(configs):
        parser.error(f"--runs {most}: use 1 to {len(configs)}, the runs of {options.grid}")
    rows = measure(configs[:most], options.runs, options.seconds, options.spin)
    best = best_of(rows)
    print(f"\nbest: {best} at a time")
    if options.out:
        options.out.write_text(json.dumps({"best": best, "rows": rows}))


if __name__ == "__main__":
    main()
