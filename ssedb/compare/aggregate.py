"""Numbers over many runs, as rows: means with intervals, aggregates, who beats whom.

runs = load_runs(Path("runs/quick"))
rows = run_table(runs)                        # a row for each run, unfinished and failed ones too
rows = condition_table(runs, "states_share")  # a row for each (env, noise, method)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ssedb.compare import statistics
from ssedb.compare.measures import MEASURES, bounds, measure
from ssedb.compare.results import Run, conditions, number_or_none

Row = dict[str, Any]


def run_table(runs: Iterable[Run], keys: Sequence[str] = ()) -> list[Row]:
    """Return a row for each run: what it was, how it ended, its measures (`keys`, or all)."""
    runs = list(runs)
    keys = list(keys) or [
        key for key in MEASURES if any(run.value(key) is not None for run in runs)
    ]
    return [
        {
            **_about(run),
            "path": str(run.path),
            "bonus": run.config.get("bonus"),
            "steps": run.summary.get("steps", 0),
            "steps_asked": run.config.get("steps"),
            "code": run.origin.get("code"),
            **{key: run.value(key) for key in keys},
        }
        for run in runs
    ]  # fmt: skip


def condition_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """Return a row for each (env, noise, method): mean of the finished runs with its 95% interval.

    `left_out` counts unfinished runs, and finished ones without a value (no episode has ended, a
    bonus without features).
    """
    rows = []
    for (env, noise, method), several in conditions(runs).items():
        values = [v for run in several if run.finished and (v := run.value(key)) is not None]
        row: Row = {
            "env": env,
            "noise": noise,
            "method": method,
            "measure": key,
            "runs": len(values),
        }
        row["left_out"] = len(several) - len(values)
        if values:
            e = statistics.bootstrap({env: values}, statistics.mean, seed=seed, bounds=bounds(key))
            row |= {
                "mean": e.value,
                "low": number_or_none(e.low),
                "high": number_or_none(e.high),
                "values": values,
            }
        else:
            row |= {"mean": None, "low": None, "high": None, "values": []}
        rows.append(row)
    return rows


def scores_by_task(runs: Iterable[Run], key: str) -> dict[str, dict[str, list[float]]]:
    """Return the values of the finished runs by method and by task ("env, noise")."""
    found: dict[str, dict[str, list[float]]] = {}
    for (env, noise, method), several in conditions(runs).items():
        values = [v for run in several if run.finished and (v := run.value(key)) is not None]
        if values:
            found.setdefault(method, {})[f"{env}, {noise}"] = values
    return found


def aggregate_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """Return a row for each method: IQM, mean, median, optimality gap over the tasks all have."""
    scores = scores_by_task(runs, key)
    common = _common_tasks(scores)
    goal, bounds_ = measure(key).goal, bounds(key)
    rows = []
    for method, tasks in scores.items():
        row: Row = {
            "method": method,
            "measure": key,
            "tasks": len(common),
            "tasks_left_out": len(tasks) - len(common),
        }
        chosen = {task: tasks[task] for task in common}
        for name, statistic in statistics.AGGREGATES.items():
            if not chosen or (name == "optimality_gap" and goal is None):
                continue
            e = statistics.bootstrap(chosen, statistic, seed=seed, bounds=bounds_)
            row |= {
                "runs": e.runs,
                name: e.value,
                f"{name}_low": number_or_none(e.low),
                f"{name}_high": number_or_none(e.high),
            }
        rows.append(row)
    return rows


def improvement_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """Return a row for each ordered pair of methods: how probably the first beats the second."""
    scores = scores_by_task(runs, key)
    sign = -1.0 if measure(key).better == "low" else 1.0
    rows = []
    for first, ours in scores.items():
        for second, theirs in scores.items():
            common = [task for task in ours if task in theirs]
            if first == second or not common:
                continue
            x, y = ({t: [sign * v for v in tasks[t]] for t in common} for tasks in (ours, theirs))
            e = statistics.improvement(x, y, seed=seed)
            row: Row = {"first": first, "second": second, "measure": key, "tasks": len(common)}
            rows.append(
                row
                | {
                    "probability": e.value,
                    "low": number_or_none(e.low),
                    "high": number_or_none(e.high),
                }
            )
    return rows


def efficiency_table(
    runs: Iterable[Run], key: str, *, points: int = 40, seed: int = 0
) -> list[Row]:
    """Return the IQM over the common tasks along training, of unfinished runs as far as they go."""
    found: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for (env, noise, method), several in conditions(runs).items():
        counted = [run for run in several if run.status != "duplicate"]
        curves = [curve for run in counted if np.isfinite((curve := run.curve(key))[1]).any()]
        if curves:
            found.setdefault(method, {})[f"{env}, {noise}"] = curves
    common = _common_tasks(found)
    ends = [steps for tasks in found.values() for task in common for steps, _ in tasks[task]]
    if not ends:
        return []
    grid = np.linspace(min(steps[0] for steps in ends), max(steps[-1] for steps in ends), points)
    rows: list[Row] = []
    for method, tasks in found.items():
        on_grid = {
            task: [statistics.resample(*curve, grid) for curve in tasks[task]] for task in common
        }
        e, counts = statistics.curve(
            on_grid, statistics.iqm, reps=400, seed=seed, bounds=bounds(key)
        )
        for i in np.flatnonzero(np.isfinite(e.value)):
            row: Row = {
                "method": method,
                "measure": key,
                "tasks": len(common),
                "steps": float(grid[i]),
                "runs": int(counts[i]),
            }
            rows.append(
                row
                | {
                    "iqm": float(e.value[i]),
                    "low": number_or_none(float(e.low[i])),
                    "high": number_or_none(float(e.high[i])),
                }
            )
    return rows


def _common_tasks(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    every = dict.fromkeys(task for tasks in scores.values() for task in tasks)
    return [task for task in every if all(task in tasks for tasks in scores.values())]


def left_out(runs: Iterable[Run]) -> list[Row]:
    """Return the runs that no average holds, and why."""
    return [_about(run) for run in runs if not run.finished]


def alarm_table(runs: Iterable[Run]) -> list[Row]:
    """Return one row an alarm about a policy, those that ended again included, with the remedy."""
    return [
        {
            "run": run.path.name,
            "method": run.method,
            **asdict(alarm),
            "text": alarm.text(run.config),
        }
        for run in runs
        for alarm in run.alarms
    ]


def _about(run: Run) -> Row:
    return {
        "run": run.path.name,
        "env": run.env,
        "noise": run.noise,
        "method": run.method,
        "seed": run.seed,
        "status": run.status,
        "reason": run.reason,
    }
