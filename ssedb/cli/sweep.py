"""`ssedb sweep`: train a grid of runs; skip those that are done."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ssedb.cli.parsing import key_value, parse
from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import refuse_other_files
from ssedb.runs.folder import ERROR_LOG, PLAN
from ssedb.runs.lock import lock_folder

LEAST = {"jobs": 1, "retries": 0, "minutes": 0, "cpus": 0, "gpus": 0}
"""The least value of each number."""


@dataclass(frozen=True)
class Sweep:
    """Train every run of a grid file, several at a time; skip those that are done."""

    grid: tyro.conf.Positional[Path]
    """The grid file, such as experiments/smoke.toml (docs/sweeps.md explains the format)."""
    out: Path | None = None
    """Folder for the runs; by default runs/NAME, NAME that of the grid file."""
    set: tuple[str, ...] = ()
    """Replace settings or axes of the file: KEY=VALUE, such as steps=1e5 seed=[0,1]."""
    jobs: int | None = None
    """Runs at a time; by default as many as cores and measured memory allow."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda or cuda:N."""
    dry_run: bool = False
    """Print the plan, with time and disk estimated from short runs, and train nothing."""
    minutes: float | None = None
    """Save and stop each run after so many minutes."""
    whole: bool = False
    """Begin only runs that would finish within --minutes, at the speed of those that did."""
    retries: int = 1
    """How often to resume a run whose process died."""
    ray: str | None = None
    """Run on Ray: auto (this machine's cluster), local (a Ray of its own here) or ray://HOST:PORT."""
    cpus: float = 1
    """On Ray: CPUs for each run."""
    gpus: float | None = None
    """On Ray: GPUs for each run; by default 0.25 where the cluster has GPUs."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Sweep, args, "sweep")
    from ssedb.sweep.grid import read_grid

    _require_numbers(options)
    if options.ray is not None:
        require_installed("ray", extra="ray", instead="leave --ray out")
    overrides = dict(map(parse_override, options.set))
    if options.device != "auto":
        overrides["device"] = options.device
    grid = read_grid(options.grid, options.out, overrides)
    if grid.probe:
        require_installed("matplotlib", extra="report", instead="leave the grid's probe out")
    root = grid.runs[0].folder.parent
    refuse_other_files(root, own=PLAN, ignore=(ERROR_LOG,))
    if options.dry_run:
        from ssedb.sweep.estimate import print_estimate

        print_estimate(grid, root, options.jobs)
        return 0
    if options.ray is None:
        _require_devices((run.config.device, run.config.engine) for run in grid.runs)
    from ssedb.sweep.run import run_sweep
    from ssedb.sweep.scheduler import Execution

    with closing(lock_folder(root, create=True)):  # two would wait for each other's runs
        given: dict[str, Any] = {name: getattr(options, name) for name in (*LEAST, "whole", "ray")}
        how = Execution(device=grid.runs[0].config.device, **given)
        outcome = run_sweep(grid, root, how)
    return 130 if outcome.stopped else 1 if outcome.failed or outcome.unfinished else 0


def parse_override(text: str) -> tuple[str, Any]:
    """Read a word of --set, such as `steps=1000` or `seed=[0,1]`."""
    try:
        return key_value(text)
    except ValueError as error:
        raise ConfigError(f"set={error}") from None


def _require_numbers(options: Sweep) -> None:
    """Raise ConfigError for a number that is too small, missing, or of no use for Ray."""
    for name, least in LEAST.items():
        value = getattr(options, name)
        if value is not None and not math.isfinite(value):
            raise ConfigError(f"{name}={value}: must be a finite number")
        if value is not None and value < least:
            raise ConfigError(f"{name}={value}: must be {least} or more")
        if value is not None and options.ray is not None and name in ("jobs", "minutes"):
            raise ConfigError(
                f"{name}={value}: Ray has its own scheduler; leave it out, or leave --ray out"
            )
    if options.whole and options.minutes is None:
        raise ConfigError("whole: give the time with --minutes, or leave --whole out")


def _require_devices(devices: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigError once, and not in each run, for a GPU that is asked for and not there."""
    for device, kind in sorted(set(devices)):
        if device.startswith("cuda") or kind == "fast":
            from ssedb.engine import require_engine
            from ssedb.engine.host import pick_device

            require_engine(kind, pick_device(device))
