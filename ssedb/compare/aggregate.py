"""Numbers over many runs, as rows: means with intervals, aggregates, who beats whom.

runs = load_runs(Path("runs/quick"))
rows = run_table(runs)                        # a row for each run, unfinished and failed ones too
rows = condition_table(runs, "states_share")  # a row for each (env, noise, method)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ssedb.compare import statistics
from ssedb.compare.measures import MEASURES, bounds, measure
from ssedb.compare.results import Run, conditions, number_or_none, tasks_of

Row = dict[str, Any]

LEAST_RUNS, LEAST_TASKS = 3, 3
"""Below both, an interval over runs and tasks covers nearly everything."""
POINTS = 40
"""Points along training at which methods are compared."""


def run_table(runs: Iterable[Run]) -> list[Row]:
    """Return a row for each run: what it was, how it ended, its measures."""
    runs = list(runs)
    keys = [key for key in MEASURES if any(run.value(key) is not None for run in runs)]
    return [
        {
            **_about(run),
            "path": str(run.path),
            "bonus": run.config.get("bonus"),
            "steps": run.summary.get("steps", 0),
            "steps_asked": run.config.get("steps"),
            "code": run.provenance.get("code"),
            **{key: run.value(key) for key in keys},
        }
        for run in runs
    ]


def condition_table(runs: Iterable[Run], key: str) -> list[Row]:
    """Return a row for each (env, noise, method): mean of the finished runs with its 95% interval.

    `left_out` counts unfinished runs, and finished ones without a value (no episode has ended, a
    bonus without features).
    """
    rows = []
    for (env, noise, method), several in conditions(runs).items():
        values = _values(several, key)
        row: Row = {"env": env, "noise": noise, "method": method, "measure": key}
        row |= {"runs": len(values), "left_out": len(several) - len(values)}
        e = statistics.Estimate(None, None, None, 0)
        if values:
            e = statistics.bootstrap({env: values}, statistics.mean, bounds=bounds(key))
        rows.append(row | _interval(e, "mean") | {"values": values})
    return rows


def by_noise(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return all runs under "", then, of several games, those under each of several noises."""
    parts = {"": list(runs)}
    noises = sorted({noise for _, noise in tasks_of(runs)}, key=lambda n: (n != "none", n))
    if len(noises) > 1 and len({env for env, _ in tasks_of(runs)}) > 1:
        parts |= {noise: [run for run in runs if run.noise == noise] for noise in noises}
    return parts


def noise_name(noise: str) -> str:
    """Return a noise as headings and legends name it; `none` is the name of a bonus, too."""
    return "no noise" if noise == "none" else noise


def under_noise(noise: str) -> str:
    """Return the words for the noise of a part of the runs, after a blank; "" for all of them."""
    return {"": "", "none": " without noise"}.get(noise, f" under {noise}")


def scores_by_task(runs: Iterable[Run], key: str) -> dict[str, dict[str, list[float]]]:
    """Return the values of the finished runs by method and by task ("env, noise")."""
    found: dict[str, dict[str, list[float]]] = {}
    for (env, noise, method), several in conditions(runs).items():
        if values := _values(several, key):
            found.setdefault(method, {})[f"{env}, {noise}"] = values
    return found


def has_few_runs(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> bool:
    """Tell whether no method has 3 runs in any task, and the tasks are fewer than 3.

    Args:
        scores: values of the finished runs by method and by task, as `scores_by_task` has them.
    """
    tasks = {task for own in scores.values() for task in own}
    most = max((len(values) for own in scores.values() for values in own.values()), default=0)
    return most < LEAST_RUNS and len(tasks) < LEAST_TASKS


def _values(runs: Iterable[Run], key: str) -> list[float]:
    return [value for run in runs if run.finished and (value := run.value(key)) is not None]


def _interval(estimate: statistics.Estimate, name: str, prefix: str = "") -> Row:
    """Return the columns of an estimate; None where there is no interval."""
    ends = {"low": estimate.low, "high": estimate.high}
    return {name: estimate.value, **{prefix + end: number_or_none(x) for end, x in ends.items()}}


def aggregate_table(runs: Iterable[Run], key: str) -> list[Row]:
    """Return a row for each method: IQM, mean, median, optimality gap over the tasks all have."""
    scores = scores_by_task(runs, key)
    common = _common_tasks(scores)
    goal = measure(key).goal
    rows = []
    for method, tasks in scores.items():
        row: Row = {"method": method, "measure": key, "tasks": len(common)}
        row["tasks_left_out"] = len(tasks) - len(common)
        chosen = {task: tasks[task] for task in common}
        for name, statistic in statistics.AGGREGATES.items():
            if chosen and (name != "optimality_gap" or goal is not None):
                e = statistics.bootstrap(chosen, statistic, bounds=bounds(key))
                row |= {"runs": e.runs, **_interval(e, name, f"{name}_")}
        rows.append(row)
    return rows


def improvement_table(runs: Iterable[Run], key: str) -> list[Row]:
    """Return a row for each ordered pair of methods: how probably the first beats the second.

    Two single runs say nothing about a probability, and have no row.
    """
    scores = scores_by_task(runs, key)
    sign = -1.0 if measure(key).better == "low" else 1.0
    rows = []
    for first, second in itertools.permutations(scores, 2):
        common = [task for task in scores[first] if task in scores[second]]
        if sum(len(scores[first][t]) * len(scores[second][t]) for t in common) > 1:
            x, y = ({t: [sign * v for v in scores[m][t]] for t in common} for m in (first, second))
            row: Row = {"first": first, "second": second, "measure": key, "tasks": len(common)}
            rows.append(row | _interval(statistics.improvement(x, y), "probability"))
    return rows


def efficiency_table(runs: Iterable[Run], key: str) -> list[Row]:
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
    grid = np.linspace(min(steps[0] for steps in ends), max(steps[-1] for steps in ends), POINTS)
    rows: list[Row] = []
    for method, tasks in found.items():
        on_grid = {task: [statistics.resample(*c, grid) for c in tasks[task]] for task in common}
        e, counts = statistics.curve(on_grid, statistics.iqm, reps=400, bounds=bounds(key))
        for i in np.flatnonzero(np.isfinite(e.value)):
            value, low, high = (float(x[i]) for x in (e.value, e.low, e.high))
            here = statistics.Estimate(value, low, high, int(counts[i]))
            row: Row = {"method": method, "measure": key, "tasks": len(common)}
            row |= {"steps": float(grid[i]), "runs": here.runs}
            rows.append(row | _interval(here, "iqm"))
    return rows


def _common_tasks(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    every = dict.fromkeys(task for tasks in scores.values() for task in tasks)
    return [task for task in every if all(task in tasks for tasks in scores.values())]


def left_out(runs: Iterable[Run]) -> list[Row]:
    """Return the runs that no average holds, and why."""
    return [_about(run) for run in runs if not run.finished]


def alarm_table(runs: Iterable[Run]) -> list[Row]:
    """Return one row an alarm about a policy, those that ended again included, with the remedy."""
    rows = []
    for run in runs:
        about = {"run": run.path.name, "method": run.method}
        rows += [{**about, **asdict(a), "text": a.text(run.config)} for a in run.alarms]
    return rows


def _about(run: Run) -> Row:
    names = ("env", "noise", "method", "seed", "status", "reason")
    return {"run": run.path.name, **{name: getattr(run, name) for name in names}}
