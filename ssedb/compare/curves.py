"""Figures along training: learning curves, noise against none, ablations, sample efficiency.

Each function takes runs and returns a matplotlib Figure, or None where the runs do not allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ssedb.compare import statistics
from ssedb.compare.aggregate import efficiency_table, noise_name, under_noise
from ssedb.compare.measures import bounds, is_share, label
from ssedb.compare.references import random_score, random_source
from ssedb.compare.results import Run, method_order, tasks_of
from ssedb.compare.style import GRAY, add_legend, label_steps, method_styles, panels
from ssedb.terminal import plural

POINTS = 80
"""Points of a curve."""
FEW = 6
"""Methods, at most, of a panel that has two lines for each."""
DB_TERMS = ("score", "i_upper", "i_pred", "i_nce")


def _counted(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.status != "duplicate"]


def learning_curves(runs: Sequence[Run], key: str, *, noise: str | None = None) -> Figure | None:
    """Draw a panel for each environment and noise: each method's mean with its 95% interval.

    The dotted line is the score of a uniform random agent (`random_score`). Unfinished runs count
    as far as they go.
    """
    runs = [r for r in _counted(runs) if noise in (None, r.noise) and r.curve(key)[0].size]
    tasks = tasks_of(runs)
    if not tasks:
        return None
    styles = method_styles(method_order(runs))
    figure, axes = panels(len(tasks), sharey=is_share(key))
    dotted: list[str] = []
    for panel, (env, under) in zip(axes, tasks, strict=True):
        for method, style in styles.items():
            _draw_curve(panel, _of(runs, env, under, method), key, style)
        if key in ("score", "human_score") and (random := random_score(env)) is not None:
            panel.axhline(random if key == "score" else 0, color=GRAY, ls=":", lw=1)
            dotted.append(env)
        panel.set_title(env if under == "none" else f"{env}, {under}")
        _begin_at_zero(panel, key)
    label_steps(figure, label(key))
    if dotted:
        styles[f"random agent, {random_source(dotted)}"] = {"color": GRAY, "ls": ":"}
    add_legend(figure, styles)
    return figure


def noise_curves(runs: Sequence[Run], key: str, noise: str) -> Figure | None:
    """Draw a panel for each environment: methods without noise (full line) and with it (dashed)."""
    runs = [r for r in _counted(runs) if r.noise in ("none", noise) and r.curve(key)[0].size]
    tasks = tasks_of(runs)
    envs = [env for env, under in tasks if under == noise and (env, "none") in tasks]
    methods = method_order(runs)
    if not envs or len(methods) > FEW:
        return None
    styles = {method: {"color": s["color"]} for method, s in method_styles(methods).items()}
    figure, axes = panels(len(envs), sharey=is_share(key))
    for panel, env in zip(axes, envs, strict=True):
        for method, style in styles.items():
            for under, line in (("none", "-"), (noise, "--")):
                several = _of(runs, env, under, method)
                _draw_curve(panel, several, key, {**style, "ls": line}, band=0.1)
        panel.set_title(env)
        _begin_at_zero(panel, key)
    label_steps(figure, f"{label(key)}\ndashed: {noise}")
    add_legend(figure, styles)
    return figure


def _of(runs: Sequence[Run], *condition: str) -> list[Run]:
    return [run for run in runs if (run.env, run.noise, run.method) == condition]


def ablation_panels(runs: Sequence[Run], env: str, noise: str) -> Figure | None:
    """Draw DB's score and the three terms of its objective, a line for each variant.

    The dotted line is the I_nce of blind guessing; what lies well below it, at the start of a run,
    is cut off.
    """
    asked = (env, noise, "db")
    runs = [run for run in runs if (run.env, run.noise, run.config.get("bonus")) == asked]
    runs = [run for run in runs if run.curve("i_upper")[0].size]
    methods = method_order(runs)
    if len(methods) < 2:
        return None
    styles = method_styles(methods)
    figure, axes = panels(len(DB_TERMS), columns=2, width=3.4)
    for panel, key in zip(axes, DB_TERMS, strict=True):
        for method, style in styles.items():
            _draw_curve(panel, _of(runs, env, noise, method), key, style)
        panel.set_title(label(key))
    guessed = np.concatenate([run.curve("i_nce_chance")[1] for run in runs])
    if guessed.size:  # a young model, far below chance, would squeeze all that matters
        chance, curves = np.nanmax(guessed), [run.curve("i_nce")[1] for run in runs]
        low, high = min(chance, *(c[-1] for c in curves)), max(chance, *map(np.nanmax, curves))
        margin = max(0.2 * (high - low), 0.1)
        axes[-1].axhline(chance, color=GRAY, ls=":", lw=1)
        axes[-1].set_ylim(low - margin, high + margin)
    label_steps(figure, "")
    figure.suptitle(f"{env}, {noise_name(noise)}", fontsize=10)
    add_legend(figure, styles)
    return figure


def sample_efficiency(runs: Sequence[Run], key: str, noise: str = "") -> Figure | None:
    """Draw the IQM over the tasks that all methods have, along training, with 95% bands."""
    rows = efficiency_table(runs, key)
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    styles = method_styles(methods)
    figure, (panel,) = panels(1, width=5.0, height=3.2)
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        steps, *line = (  # None becomes NaN
            np.array([row[name] for row in own], float) for name in ("steps", "iqm", "low", "high")
        )
        _draw_line(panel, steps, line, styles[method], band=0.12)
    _begin_at_zero(panel, key)
    tasks = f"{plural(rows[0]['tasks'], 'task')}{under_noise(noise)}"
    label_steps(figure, f"{label(key)}\nIQM over {tasks}")
    add_legend(figure, styles)
    return figure


def _begin_at_zero(panel: Any, key: str) -> None:
    """Let the vertical axis of a share begin at 0, where other measures fill the panel."""
    if is_share(key):
        panel.set_ylim(bottom=0)


def _draw_curve(
    panel: Any, runs: Sequence[Run], key: str, style: dict[str, Any], band: float = 0.18
) -> None:
    curves = [curve for run in runs if np.isfinite((curve := run.curve(key))[1]).any()]
    if not curves:
        return
    first, last = min(steps[0] for steps, _ in curves), max(steps[-1] for steps, _ in curves)
    grid = np.linspace(first, last, POINTS)
    on_grid = {"": [statistics.resample(*curve, grid) for curve in curves]}
    found, _ = statistics.curve(on_grid, reps=400, bounds=bounds(key))
    low, high = found.low, found.high
    if len(curves) == 2 and first < last:
        # An interval from two runs is so wide that it hides the others: the runs say more.
        low = high = found.value
        thin = {"color": style["color"], "ls": style["ls"], "alpha": 0.5, "lw": 0.7}
        panel.plot(grid, np.transpose(on_grid[""]), **thin)
    _draw_line(panel, grid, (found.value, low, high), style, band)


def _draw_line(
    panel: Any, steps: np.ndarray, line: Sequence[np.ndarray], style: dict[str, Any], band: float
) -> None:
    """Draw a line (values, low, high) and its band; or, of a single step, a point and a bar."""
    middle, low, high = line
    style = {k: v for k, v in style.items() if k != "marker"}
    if steps[0] == steps[-1]:
        panel.plot(steps[:1], middle[:1], marker="o", ms=4, **style)
        panel.plot([steps[0]] * 2, [low[0], high[0]], color=style["color"], alpha=0.4, lw=3)
        return
    panel.plot(steps, middle, **style)
    panel.fill_between(steps, low, high, color=style["color"], alpha=band, lw=0)
