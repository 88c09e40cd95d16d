"""Figures of how runs ended: by condition, aggregates, profiles, who beats whom.

Each function takes runs and returns a matplotlib Figure, or None where the runs do not allow it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ssedb.compare import statistics
from ssedb.compare.aggregate import (
    aggregate_table,
    condition_table,
    improvement_table,
    scores_by_task,
)
from ssedb.compare.measures import label
from ssedb.compare.results import Run, method_order
from ssedb.compare.style import (
    COLOURS,
    GRAY,
    MARKERS,
    add_legend,
    label_axes,
    method_styles,
    panels,
)
from ssedb.terminal import plural


def by_condition(runs: Sequence[Run], key: str) -> Figure | None:
    """Draw a panel for each environment, a row for each method: mean, 95% interval, every run."""
    rows = [row for row in condition_table(runs, key) if row["values"]]
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    envs = list(dict.fromkeys(row["env"] for row in rows))
    height = 0.8 + 0.11 * len(methods) * max(len(noises), 2)
    figure, axes = panels(
        len(envs), height=height, width=5.5 if len(envs) == 1 else 3.4, sharey=True
    )
    for panel, env in zip(axes, envs, strict=True):
        for i, noise in enumerate(noises):
            for row in [r for r in rows if (r["env"], r["noise"]) == (env, noise)]:
                y = methods.index(row["method"]) + (i - (len(noises) - 1) / 2) * 0.22
                style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
                panel.plot(
                    row["values"],
                    [y] * len(row["values"]),
                    "|",
                    color=style["color"],
                    alpha=0.45,
                    ms=4,
                )
                if row["low"] is not None:
                    panel.plot([row["low"], row["high"]], [y, y], color=style["color"], lw=1.6)
                panel.plot(row["mean"], y, ls="", ms=4.5, **style)
        panel.set_yticks(range(len(methods)), methods)
        panel.set(title=env, ylim=(len(methods) - 0.5, -0.5))
    label_axes(figure, f"{label(key)}: mean, 95% interval, runs", "")
    add_legend(
        figure,
        {
            n: {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "ls": ""}
            for i, n in enumerate(noises)
        },
    )
    return figure


def aggregates(runs: Sequence[Run], key: str) -> Figure | None:
    """Draw IQM, mean, median and optimality gap over the tasks that all have, with intervals."""
    rows = [row for row in aggregate_table(runs, key) if "iqm" in row]
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    names = [name for name in statistics.AGGREGATES if name in rows[0]]
    styles = method_styles(methods)
    figure, axes = panels(
        len(names), height=1.2 + 0.24 * len(methods), columns=4, width=2.4, sharey=True
    )
    for panel, name in zip(axes, names, strict=True):
        for row in rows:
            y, colour = methods.index(row["method"]), styles[row["method"]]["color"]
            if row[f"{name}_low"] is not None:
                span = row[f"{name}_high"] - row[f"{name}_low"]
                panel.barh(y, span, 0.6, left=row[f"{name}_low"], color=colour, alpha=0.55)
            panel.plot([row[name]] * 2, [y - 0.3, y + 0.3], color="black", lw=1.6)
        panel.use_sticky_edges = False  # a bar does not begin at the frame
        panel.margins(x=0.08)
        panel.set_yticks(range(len(methods)), methods)
        panel.set(
            title={"iqm": "IQM", "optimality_gap": "optimality gap"}.get(name, name),
            ylim=(len(methods) - 0.5, -0.5),
        )
    tasks = rows[0]["tasks"]
    figure.suptitle(f"{label(key)} over {plural(tasks, 'task')}", fontsize=10)
    return figure


def profiles(runs: Sequence[Run], key: str) -> Figure | None:
    """Draw, for every threshold, the share of runs above it, with 95% bands."""
    scores = scores_by_task(runs, key)
    values = [v for tasks in scores.values() for runs_ in tasks.values() for v in runs_]
    if not values:
        return None
    low, high = min(values), max(values)
    margin = 0.03 * (high - low) or 0.5
    taus = np.linspace(low - margin, high + margin, 121)
    methods = [m for m in method_order(runs) if m in scores]
    styles = method_styles(methods)
    figure, (panel,) = panels(1, width=5.0, height=3.2)
    for method in methods:
        found = statistics.profile(scores[method], taus, reps=500)
        style = {k: v for k, v in styles[method].items() if k != "marker"}
        panel.plot(taus, found.value, drawstyle="steps-post", **style)
        panel.fill_between(
            taus, found.low, found.high, step="post", color=style["color"], alpha=0.12, lw=0
        )
    panel.set(ylim=(-0.02, 1.02))
    label_axes(figure, f"{label(key)}, threshold", "share of runs above it")
    add_legend(figure, styles)
    return figure


def improvement(runs: Sequence[Run], key: str, method: str | None = None) -> Figure | None:
    """Draw how probably a run of one method, the first unless named, beats one of each other."""
    rows = improvement_table(runs, key)
    order = [m for m in method_order(runs) if any(row["first"] == m for row in rows)]
    if len(order) < 2:
        return None
    method = method or order[0]
    rows = [next(r for r in rows if (r["first"], r["second"]) == (method, m)) for m in order
            if any((r["first"], r["second"]) == (method, m) for r in rows)]  # fmt: skip
    figure, (panel,) = panels(1, width=5.0, height=0.9 + 0.26 * len(rows))
    for y, row in enumerate(rows):
        if row["low"] is not None:
            panel.barh(
                y, row["high"] - row["low"], 0.6, left=row["low"], color=COLOURS[0], alpha=0.45
            )
        panel.plot([row["probability"]] * 2, [y - 0.3, y + 0.3], color="black", lw=1.6)
    panel.axvline(0.5, color=GRAY, ls=":", lw=1)
    panel.set_yticks(range(len(rows)), [row["second"] for row in rows])
    panel.set(xlim=(-0.02, 1.02), ylim=(len(rows) - 0.5, -0.5))
    label_axes(figure, f"P({method} better than ...), by {label(key)}", "")
    return figure
