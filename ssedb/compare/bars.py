"""Figures of how runs ended: by condition, aggregates, profiles, who beats whom.

Each function takes runs and returns a matplotlib Figure, or None where the runs do not allow it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.markers import TICKUP

from ssedb.compare import statistics
from ssedb.compare.aggregate import (
    Row,
    aggregate_table,
    condition_table,
    has_few_runs,
    improvement_table,
    noise_name,
    scores_by_task,
    under_noise,
)
from ssedb.compare.measures import is_share, label
from ssedb.compare.results import RECOMMENDED, Run, method_order
from ssedb.compare.style import (
    COLOURS,
    GRAY,
    add_legend,
    label_axes,
    method_styles,
    noise_styles,
    panels,
)
from ssedb.terminal import plural

LABEL = 40
"""Characters of a line below a panel, at most."""


def by_condition(runs: Sequence[Run], key: str) -> Figure | None:
    """Draw a panel for each environment, a row for each method: mean, 95% interval, every run."""
    rows = [row for row in condition_table(runs, key) if row["values"]]
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    noises, envs = (list(dict.fromkeys(row[name] for row in rows)) for name in ("noise", "env"))
    apart = min(0.22, 0.8 / len(noises))  # the rows of two methods stay apart
    styles = noise_styles(noises)
    # In one line the labels of neighbouring panels would lie on each other.
    marks = ("marker: mean; line: 95% interval;", "ticks above: single runs")
    below = [*textwrap.wrap(label(key), LABEL), *marks]
    height = 0.65 + 0.15 * len(below) + 0.14 * len(methods) * max(len(noises), 2)
    width = 5.5 if len(envs) == 1 else 3.4
    figure, axes = panels(len(envs), height=height, width=width, sharey=True)
    for panel, env in zip(axes, envs, strict=True):
        for row in [r for r in rows if r["env"] == env]:
            shift = noises.index(row["noise"]) - (len(noises) - 1) / 2
            y = methods.index(row["method"]) + apart * shift
            values, style = row["values"], styles[row["noise"]]
            ticks: dict[str, Any] = dict(marker=TICKUP, ms=5.5, mew=1, ls="", zorder=3)
            panel.plot(values, [y] * len(values), color=style["color"], **ticks)
            if row["low"] is not None:
                panel.plot([row["low"], row["high"]], [y, y], color=style["color"], lw=1.6)
            panel.plot(row["mean"], y, ms=4.5, **style)
        if is_share(key):
            panel.set_xlim(left=0)
        for y in range(1, len(methods), 2):  # tells the rows of a method from its neighbours'
            panel.axhspan(y - 0.5, y + 0.5, color=GRAY, alpha=0.1, lw=0, zorder=0)
        _name_rows(panel, methods, env)
    label_axes(figure, "\n".join(below), "")
    add_legend(figure, {noise_name(noise): style for noise, style in styles.items()})
    return figure


def _name_rows(panel: Any, names: Sequence[str], title: str = "") -> None:
    """Write the names beside the rows of a panel, the first at its top."""
    panel.set_yticks(range(len(names)), names)
    panel.set(title=title, ylim=(len(names) - 0.5, -0.5))


def _draw_bar(panel: Any, y: int, row: Row, name: str, ends: Sequence[str], **style: Any) -> None:
    """Draw a value as a black mark, and its interval, if there is one, as a bar."""
    low, high = (row[end] for end in ends)
    if low is not None:
        panel.barh(y, high - low, 0.6, left=low, **style)
    panel.plot([row[name]] * 2, [y - 0.3, y + 0.3], color="black", lw=1.6)


def aggregates(runs: Sequence[Run], key: str, noise: str = "") -> Figure | None:
    """Draw IQM, mean, median and optimality gap over the tasks that all have, with intervals.

    There is nothing to compare, and no figure, where a single method has them.
    """
    rows = {row["method"]: row for row in aggregate_table(runs, key) if "iqm" in row}
    if len(rows) < 2:
        return None
    methods = [m for m in method_order(runs) if m in rows]
    tasks = rows[methods[0]]["tasks"]
    names = [name for name in statistics.AGGREGATES if name in rows[methods[0]]]
    styles = method_styles(methods)
    height = 1.2 + 0.24 * len(methods)
    figure, axes = panels(len(names), height=height, columns=4, width=2.4, sharey=True)
    for panel, name in zip(axes, names, strict=True):
        for y, method in enumerate(methods):
            style = {"color": styles[method]["color"], "alpha": 0.55}
            _draw_bar(panel, y, rows[method], name, (f"{name}_low", f"{name}_high"), **style)
        panel.use_sticky_edges = False  # a bar does not begin at the frame
        panel.margins(x=0.08)
        if is_share(key):
            panel.set_xlim(left=0)
        _name_rows(panel, methods, "IQM" if name == "iqm" else name.replace("_", " "))
    over = f"{plural(tasks, 'task')}{under_noise(noise)}"
    figure.suptitle(f"{label(key)} over {over}", fontsize=10)
    return figure


def profiles(runs: Sequence[Run], key: str, noise: str = "") -> Figure | None:
    """Draw, for every threshold, the share of runs above it, with 95% bands."""
    scores = scores_by_task(runs, key)
    values = [v for tasks in scores.values() for runs_ in tasks.values() for v in runs_]
    if has_few_runs(scores):
        return None
    low, high = min(values), max(values)
    margin = 0.03 * (high - low) or 0.5
    taus = np.linspace(low - margin, high + margin, 121)
    methods = [m for m in method_order(runs) if m in scores]
    styles = method_styles(methods)
    figure, (panel,) = panels(1, width=5.0, height=3.2)
    for method in methods:
        found = statistics.profile(scores[method], taus, reps=500)
        colour, line = styles[method]["color"], styles[method]["ls"]
        panel.plot(taus, found.value, drawstyle="steps-post", color=colour, ls=line)
        band: dict[str, Any] = dict(step="post", color=colour, alpha=0.12, lw=0)
        panel.fill_between(taus, found.low, found.high, **band)
    panel.set(ylim=(-0.02, 1.02))
    label_axes(figure, f"{label(key)}{under_noise(noise)}, threshold", "share of runs above it")
    add_legend(figure, styles)
    return figure


def improvement(runs: Sequence[Run], key: str, noise: str = "") -> Figure | None:
    """Draw how probably a run of our bonus, else of the first method, beats one of each other."""
    rows = {(row["first"], row["second"]): row for row in improvement_table(runs, key)}
    order = [m for m in method_order(runs) if any(first == m for first, _ in rows)]
    if len(order) < 2 or has_few_runs(scores_by_task(runs, key)):
        return None
    method = next((m for m in order if m.split()[0] == RECOMMENDED), order[0])
    others = [other for other in order if (method, other) in rows]
    figure, (panel,) = panels(1, width=5.0, height=0.9 + 0.26 * len(others))
    for y, other in enumerate(others):
        style = {"color": COLOURS[0], "alpha": 0.45}
        _draw_bar(panel, y, rows[method, other], "probability", ("low", "high"), **style)
    panel.axvline(0.5, color=GRAY, ls=":", lw=1)
    panel.set(xlim=(-0.02, 1.02))
    _name_rows(panel, others)
    by = f"by {label(key)}{under_noise(noise)}"
    label_axes(figure, f"P({method} better than ...)\n{by}", "")
    return figure
