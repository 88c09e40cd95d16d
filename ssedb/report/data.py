"""Content of the page as plain data: runs, curves, statistics, bottlenecks, maps, settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssedb.compare.aggregate import (
    aggregate_table,
    by_noise,
    condition_table,
    has_few_runs,
    improvement_table,
    scores_by_task,
    under_noise,
)
from ssedb.compare.measures import MEASURES, about, is_share, label
from ssedb.compare.results import Run, method_looks, method_order, number_or_none
from ssedb.compare.tables import (
    CERTAIN,
    FEW_RUNS,
    NEVER_OVERLAP,
    number,
    probability,
    unlike,
    value_and_interval,
)
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.envs.rooms.layout import SIZES, draw_layout
from ssedb.errors import ConfigError
from ssedb.report.collapse import RULE, bottleneck
from ssedb.report.command import full_command, train_command
from ssedb.runs.folder import outside_settings
from ssedb.thin import compact, evenly_spaced, thin_curve

POINTS = 300_000
"""Points of all curves together, so that the page stays quick with hundreds of runs."""
LEAST_POINTS, MOST_POINTS = 60, 400
MOST_MAPS = 60
NOT_DRAWN = {"time", "steps", "updates", "episodes"}
FIRST = ("human_score", "states_share", "bonus_noise_share")
"""Measures that the page may open with: those on a scale that environments share."""
OWN_SCALE = ("score", "score_best", "area:score")
"""Measures that every game counts in its own way."""


def collect(runs: Sequence[Run], title: str, base: Path) -> dict[str, Any]:
    """Collect everything but the episodes; run folders are named relative to `base`."""
    curves = sum(len(_curve_keys(run)) for run in runs)
    points = min(MOST_POINTS, max(LEAST_POINTS, POINTS // max(curves, 1)))
    entries = [_run(run, i, points, base) for i, run in enumerate(runs)]
    drawn = dict.fromkeys(key for entry in entries for key in entry["curves"])
    methods = method_order(runs)
    return {
        "title": title,
        "methods": methods,
        "looks": method_looks(methods),
        "runs": entries,
        "labels": {key: label(key) for key in [*drawn, *MEASURES]},
        "shares": [key for key in drawn if is_share(key)],
        "measures": [_measure(runs, key) for key in _measures(runs)],
        "unlike": unlike(runs),
        "rule": RULE,
        "rooms": _rooms(runs),
        "episodes": [],
    }


def _run(run: Run, number: int, points: int, base: Path) -> dict[str, Any]:
    steps = run.metrics.get("steps", np.zeros(0))
    neck = bottleneck(run.metrics, contrast=run.config.get("bonus_options", {}).get("alpha3") != 0)
    config = {k: v for k, v in run.config.items() if k != "bonus_options"}
    return {
        "id": number,
        "name": _name(run.path, base),
        "env": run.env,
        "noise": run.noise,
        "method": run.method,
        "seed": run.seed,
        "status": run.status,
        "reason": run.reason,
        "steps": int(run.summary.get("steps", 0) or (steps[-1] if len(steps) else 0)),
        "asked": run.config.get("steps"),
        "not_finite": list(run.not_finite),
        "curves": {key: _curve(run, key, points) for key in _curve_keys(run)},
        "neck": None if neck is None else {
            "i_upper": _short(neck.i_upper), "over": _short(neck.over_chance), "state": neck.state
        },
        "alarms": [{"stands": a.stands, "text": a.text(run.config)} for a in run.alarms],
        "config": {k: _text(v) for k, v in config.items()},
        "options": {k: _text(v) for k, v in dict(run.config.get("bonus_options", {})).items()},
        "command": _command(run),
        "machine": {k: str(v) for k, v in dict(run.summary.get("machine") or {}).items()},
        "code": run.provenance.get("code"),
    }  # fmt: skip


def _name(path: Path, base: Path) -> str:
    try:
        name = path.resolve().relative_to(base.resolve()).as_posix()
    except ValueError:
        name = path.as_posix()
    return path.resolve().name if name == "." else name


def _curve_keys(run: Run) -> list[str]:
    normalised = [key for key in ("human_score",) if run.curve(key)[0].size]
    keys = [key for key in run.metrics if key not in NOT_DRAWN]
    return [key for key in [*normalised, *keys] if np.isfinite(run.curve(key)[1]).any()]


def _curve(run: Run, key: str, points: int) -> dict[str, Any]:
    x, y = thin_curve(*run.curve(key), points)
    return {"x": compact(x, 9), "y": compact(y)}


def _command(run: Run) -> str | None:
    """Return the run's command; None where this version cannot read its settings."""
    if not run.config:
        return None
    if outside_settings(run.config):
        return full_command(run.config)  # a report imports no code that a run names
    try:
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in run.config.items()
        }
        return train_command(TrainConfig(**settings))
    except (ConfigError, TypeError):
        return None


# Statistics.


def _measures(runs: Sequence[Run]) -> list[str]:
    """Return the measures that a finished run has, those that most runs have first."""
    count = {
        key: sum(r.finished and r.value(key) is not None for r in runs)
        for key, m in MEASURES.items()
        if m.better
    }
    order = {key: place for place, key in enumerate(FIRST)}
    known = [key for key in count if count[key]]
    return sorted(known, key=lambda key: (key not in order, -count[key], order.get(key, 0)))


def _measure(runs: Sequence[Run], key: str) -> dict[str, Any]:
    # An Atari score means nothing on Rooms.
    measured = {run.env for run in runs if run.value(key) is not None}
    runs = [run for run in runs if run.env in measured or not run.finished]
    together, *parts = by_noise(runs).items()
    return {
        "key": key,
        "label": label(key),
        "about": about(key, measured),
        "better": MEASURES[key].better,
        "mixed": key in OWN_SCALE and len(measured) > 1,
        "share": is_share(key),
        "conditions": [
            {**_plain(row), "shown": value_and_interval(row, "mean") if row["values"] else ("", "")}
            for row in condition_table(runs, key)
        ],
        **_compared(together[1], key),
        "by_noise": [
            {"name": under_noise(noise).strip(), **_compared(part, key)} for noise, part in parts
        ],
    }


def _compared(runs: Sequence[Run], key: str) -> dict[str, Any]:
    """Compare the methods over the tasks of the runs: who is best, and who beats whom."""
    aggregates = aggregate_table(runs, key)
    sign = -1 if MEASURES[key].better == "low" else 1
    with_value = [row for row in aggregates if row.get("iqm") is not None]
    without = [row for row in aggregates if row not in with_value]
    ranking = [*sorted(with_value, key=lambda row: -sign * row["iqm"]), *without]
    pairs = [{**_plain(r), "shown": probability(r)} for r in improvement_table(runs, key)]
    return {
        "ranking": [{**_plain(row), "shown": _shown(row)} for row in ranking],
        "improvements": pairs,
        "certain": NEVER_OVERLAP if any(r["shown"] == CERTAIN for r in pairs) else "",
        "caution": FEW_RUNS if pairs and has_few_runs(scores_by_task(runs, key)) else "",
    }


def _shown(row: dict[str, Any]) -> list[str]:
    """Return IQM, interval, mean and median of a method as texts; nothing where it has none."""
    if row.get("iqm") is None:
        return []
    return [*value_and_interval(row, "iqm", "iqm_"), number(row["mean"]), number(row["median"])]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        k: _short(v)
        if isinstance(v, float)
        else [_short(x) for x in v]
        if isinstance(v, list)
        else v
        for k, v in row.items()
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


# Rooms.


def _rooms(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the maps of every run on Rooms, perhaps none, with its world's plan."""
    found = []
    for index, run in enumerate(runs):
        world = rooms_world(run.env)
        if world is None:
            continue
        layout = draw_layout(SIZES[world[0]], world[1])
        cells = int(layout.floor.sum())
        maps = [
            (row["steps"], visits, _by_cell(row.get("bonus"), cells))
            for row in run.maps
            if (visits := _by_cell(row.get("visits"), cells))
        ]
        chosen = [maps[i] for i in evenly_spaced(len(maps), MOST_MAPS)]
        found.append({
            "run": index,
            "floor": ["".join("1" if cell else "0" for cell in row) for row in layout.floor],
            "marks": _marks(layout),
            "steps": [steps for steps, _, _ in chosen],
            "visits": [visits for _, visits, _ in chosen],
            "bonus": [bonus for _, _, bonus in chosen],
        })  # fmt: skip
    return found


def _by_cell(values: Any, cells: int) -> list[float | None] | None:
    """Return one number for each cell, None for one that is not finite; None for other values."""
    if not isinstance(values, list) or len(values) != cells:
        return None
    return [None if number_or_none(value) is None else value for value in values]


def _marks(layout: Any) -> list[dict[str, Any]]:
    """Return the start, keys, locks and treasure of a plan."""
    marks = [
        ("start", layout.start),
        *(("key", cell) for cell in layout.keys),
        *(("lock", cell) for cell in layout.locks),
        ("treasure", layout.treasure),
    ]
    return [{"what": what, "row": int(row), "column": int(column)} for what, (row, column) in marks]
