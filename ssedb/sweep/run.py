"""A sweep: say what is there, run what is missing, say how it ended."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ssedb import terminal
from ssedb.sweep.display import Display
from ssedb.sweep.grid import Grid, Planned
from ssedb.sweep.plan import (
    is_finished,
    made_by_other_code,
    share_of_cores,
    threads_of,
    unplanned_runs,
    write_plan,
)
from ssedb.sweep.scheduler import Execution, Outcome, run_here
from ssedb.terminal import plural


def run_sweep(grid: Grid, root: Path, how: Execution) -> Outcome:
    """Do what is missing of a grid, and leave what is there as it is.

    Args:
        grid: the runs.
        root: the sweep's folder.
        how: without `probe`, which the grid says, and `threads`, which the plan in the folder says.
    """
    console = terminal.console()
    missing = [run for run in grid.runs if not is_finished(run, grid.probe)]
    with ExitStack() as later:
        if how.ray is not None and missing:
            from ssedb.sweep.cluster import connected, run_on_ray

            later.enter_context(connected(how.ray))  # before anything is written
        local = how.ray is None
        usual = share_of_cores(grid, how.jobs) if local else max(1, int(how.cpus))
        threads = threads_of(root, usual)
        write_plan(grid, root, threads)
        _say_what_is_there(console, grid, root, missing)
        if not missing:
            console.print("nothing to do")
            _say_what_next(console, root)
            return Outcome()
        display = later.enter_context(Display(missing, len(grid.runs) - len(missing)))
        how = replace(how, probe=grid.probe, threads=threads)
        outcome = (run_here if local else run_on_ray)(missing, display, how)
    outcome.unfinished = sum(not is_finished(run, grid.probe) for run in missing)
    _say_how_it_ended(console, grid, root, outcome)
    return outcome


def _say_what_is_there(console: Console, grid: Grid, root: Path, missing: list[Planned]) -> None:
    done, steps = len(grid.runs) - len(missing), sum(run.config.steps for run in missing)
    runs = plural(len(grid.runs), "run")
    counts = f"{runs}, {done} finished, {len(missing)} to do ({steps:,} steps)"
    console.print(f"{grid.name}: {counts}, in {root}", soft_wrap=True)
    for code, count in made_by_other_code(grid.runs).items():
        console.print(
            f"note: made by other code, in part or whole: {plural(count, 'run')} (ssedb {code})",
            soft_wrap=True,
        )
    if others := unplanned_runs(grid, root):
        console.print(
            f"note: not in this grid, whose settings have changed, and left alone: "
            f"{plural(len(others), 'run')} in {root}, such as {others[0]}",
            soft_wrap=True,
        )


def _say_how_it_ended(console: Console, grid: Grid, root: Path, outcome: Outcome) -> None:
    if outcome.failed:
        table = Table("run", "error", title=f"{plural(len(outcome.failed), 'run')} failed")
        for name, error in outcome.failed.items():
            table.add_row(name, error)
        terminal.print_table(table, console)
    runs = plural(len(grid.runs), "run")
    if left := outcome.unfinished:
        console.print(f"{left} of {runs} not finished; the same command goes on with them")
    else:
        console.print(f"{runs}, all finished")
    _say_what_next(console, root)


def _say_what_next(console: Console, root: Path) -> None:
    folder = shlex.quote(str(root))
    console.print(f"tables       ssedb stats {folder}", soft_wrap=True)
    console.print(f"page         ssedb report {folder}", soft_wrap=True)
