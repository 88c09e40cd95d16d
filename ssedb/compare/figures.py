"""Figures of many runs, for print: learning curves, noise against none, ablations, aggregates, profiles, comparisons.

Each function takes runs (`ssedb.compare.results.load_runs`) and gives a matplotlib Figure, or None where the runs do not
allow it; `write_figures` draws all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib.figure import Figure

from ssedb.compare import results, statistics
from ssedb.compare.references import random_score, random_source
from ssedb.compare.results import Run, label, method_order

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is too pale for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GRAY = "#777777"
LINES, MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D", "v", "P", "X")
POINTS = 80
"""Points of a curve."""
FEW = 6
"""Methods, at most, of a panel that has two lines for each."""
DB_TERMS = {
    "score": "extrinsic score",
    "i_upper": "I_upper (nats)",
    "i_pred": "I_pred (nats)",
    "i_nce": "I_nce (nats)",
}

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,
}


def method_styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour, a line and a marker for each method; the random agent is gray."""
    found: dict[str, dict[str, Any]] = {}
    for i, method in enumerate(m for m in methods if m != "none"):
        turn = i // len(COLOURS)
        found[method] = {
            "color": COLOURS[i % len(COLOURS)],
            "ls": LINES[turn % 4],
            "marker": MARKERS[turn % 7],
        }
    return found | (
        {"none": {"color": GRAY, "ls": "-", "marker": "x"}} if "none" in methods else {}
    )


def _counted(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.status != "duplicate"]


def learning_curves(runs: Sequence[Run], key: str, *, noise: str | None = None) -> Figure | None:
    """A panel for each environment and noise, a line for each method: mean over seeds with its 95% interval.

    The dotted line is the score of a uniform random agent (`random_score`). Unfinished runs count as far as they go.
    """
    runs = [
        run
        for run in _counted(runs)
        if (noise is None or run.noise == noise) and run.curve(key)[0].size
    ]
    tasks = results.tasks_of(runs)
    if not tasks:
        return None
    methods = method_order(runs)
    styles = method_styles(methods)
    figure, panels = _panels(len(tasks))
    dotted: list[str] = []
    for panel, task in zip(panels, tasks, strict=True):
        for method in methods:
            several = [run for run in runs if (run.env, run.noise, run.method) == (*task, method)]
            if several:
                _draw_curve(panel, several, key, styles[method])
        if key in ("score", "human_score") and (random := random_score(task[0])) is not None:
            panel.axhline(random if key == "score" else 0, color=GRAY, ls=":", lw=1)
            dotted.append(task[0])
        panel.set_title(task[0] if task[1] == "none" else f"{task[0]}, {task[1]}")
        panel.xaxis.set_major_formatter(_steps_formatter())
    _common_labels(figure, "agent steps", label(key))
    _legend(
        figure,
        styles
        | (
            {f"random agent, {random_source(dotted)}": {"color": GRAY, "ls": ":"}} if dotted else {}
        ),
    )
    return figure


def noise_curves(runs: Sequence[Run], key: str, noise: str) -> Figure | None:
    """A panel for each environment: a few methods without noise (full line) and with it (dashed)."""
    runs = [
        run for run in _counted(runs) if run.noise in ("none", noise) and run.curve(key)[0].size
    ]
    tasks = results.tasks_of(runs)
    envs = [env for env, under in tasks if under == noise and (env, "none") in tasks]
    methods = method_order(runs)
    if not envs or len(methods) > FEW:
        return None
    colours = {method: style["color"] for method, style in method_styles(methods).items()}
    figure, panels = _panels(len(envs))
    for panel, env in zip(panels, envs, strict=True):
        for method in methods:
            for under, line in (("none", "-"), (noise, "--")):
                several = [
                    run for run in runs if (run.env, run.noise, run.method) == (env, under, method)
                ]
                if several:
                    _draw_curve(
                        panel, several, key, {"color": colours[method], "ls": line}, band=0.1
                    )
        panel.set_title(env)
        panel.xaxis.set_major_formatter(_steps_formatter())
    _common_labels(figure, "agent steps", f"{label(key)}; dashed: {noise}")
    _legend(figure, {method: {"color": colour} for method, colour in colours.items()})
    return figure


def by_condition(runs: Sequence[Run], key: str) -> Figure | None:
    """A row for each method, a marker for each noise (a panel for each environment): mean, 95% interval and every run."""
    rows = [row for row in results.condition_table(runs, key) if row["values"]]
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    envs = list(dict.fromkeys(row["env"] for row in rows))
    height = 0.8 + 0.11 * len(methods) * max(len(noises), 2)
    figure, panels = _panels(
        len(envs), height=height, width=5.5 if len(envs) == 1 else 3.4, sharey=True
    )
    for panel, env in zip(panels, envs, strict=True):
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
    _common_labels(figure, f"{label(key)}: mean, 95% interval, runs", "")
    _legend(
        figure,
        {
            n: {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "ls": ""}
            for i, n in enumerate(noises)
        },
    )
    return figure


def ablation_panels(runs: Sequence[Run], env: str, noise: str) -> Figure | None:
    """DB's score and the three terms of its objective along training, a line for each variant.

    The dotted line is the I_nce of blind guessing; what lies well below it, at the start of a run, is cut off.
    """
    runs = [
        r
        for r in runs
        if (r.env, r.noise, r.config.get("bonus")) == (env, noise, "db")
        and r.curve("i_upper")[0].size
    ]
    methods = method_order(runs)
    if len(methods) < 2:
        return None
    styles = method_styles(methods)
    figure, panels = _panels(len(DB_TERMS), columns=2, width=3.4)
    for panel, (key, name) in zip(panels, DB_TERMS.items(), strict=True):
        for method in methods:
            _draw_curve(panel, [run for run in runs if run.method == method], key, styles[method])
        panel.set_title(name)
        panel.xaxis.set_major_formatter(_steps_formatter())
    guessed = np.concatenate([run.curve("i_nce_chance")[1] for run in runs])
    if (
        guessed.size
    ):  # a young model is far below chance, and would squeeze all that matters into a line
        chance, curves = np.nanmax(guessed), [run.curve("i_nce")[1] for run in runs]
        low, high = (
            min(chance, *(curve[-1] for curve in curves)),
            max(chance, *map(np.nanmax, curves)),
        )
        margin = max(0.2 * (high - low), 0.1)
        panels[-1].axhline(chance, color=GRAY, ls=":", lw=1)
        panels[-1].set_ylim(low - margin, high + margin)
    _common_labels(figure, "agent steps", "")
    figure.suptitle(f"{env}, noise {noise}", fontsize=10)
    _legend(figure, styles)
    return figure


def aggregates(runs: Sequence[Run], key: str) -> Figure | None:
    """IQM, mean, median (and optimality gap) of each method over the tasks that all have, with 95% intervals."""
    rows = [row for row in results.aggregate_table(runs, key) if "iqm" in row]
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    names = [name for name in statistics.AGGREGATES if name in rows[0]]
    styles = method_styles(methods)
    figure, panels = _panels(
        len(names), height=1.2 + 0.24 * len(methods), columns=4, width=2.4, sharey=True
    )
    for panel, name in zip(panels, names, strict=True):
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
    figure.suptitle(f"{label(key)} over {tasks} task{'s'[: tasks > 1]}", fontsize=10)
    return figure


def sample_efficiency(runs: Sequence[Run], key: str) -> Figure | None:
    """IQM over the tasks that all methods have, along training, with 95% bands."""
    rows = results.efficiency_table(runs, key)
    if not rows:
        return None
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    styles = method_styles(methods)
    figure, (panel,) = _panels(1, width=5.0, height=3.2)
    for method in methods:
        mine = [row for row in rows if row["method"] == method]
        steps, middle = [row["steps"] for row in mine], [row["iqm"] for row in mine]
        low, high = (
            [math.nan if row[k] is None else row[k] for row in mine] for k in ("low", "high")
        )
        style = {k: v for k, v in styles[method].items() if k != "marker"}
        panel.plot(steps, middle, **style)
        panel.fill_between(steps, low, high, color=style["color"], alpha=0.12, lw=0)
    panel.xaxis.set_major_formatter(_steps_formatter())
    _common_labels(
        figure,
        "agent steps",
        f"{label(key)}, IQM over {rows[0]['tasks']} task{'s'[: rows[0]['tasks'] > 1]}",
    )
    _legend(figure, styles)
    return figure


def profiles(runs: Sequence[Run], key: str) -> Figure | None:
    """For every threshold the share of runs above it, with 95% bands."""
    scores = results.scores_by_task(runs, key)
    values = [v for tasks in scores.values() for runs_ in tasks.values() for v in runs_]
    if not values:
        return None
    low, high = min(values), max(values)
    margin = 0.03 * (high - low) or 0.5
    taus = np.linspace(low - margin, high + margin, 121)
    methods = [m for m in method_order(runs) if m in scores]
    styles = method_styles(methods)
    figure, (panel,) = _panels(1, width=5.0, height=3.2)
    for method in methods:
        found = statistics.profile(scores[method], taus, reps=500)
        style = {k: v for k, v in styles[method].items() if k != "marker"}
        panel.plot(taus, found.value, drawstyle="steps-post", **style)
        panel.fill_between(
            taus, found.low, found.high, step="post", color=style["color"], alpha=0.12, lw=0
        )
    panel.set(ylim=(-0.02, 1.02))
    _common_labels(figure, f"{label(key)}, threshold", "share of runs above it")
    _legend(figure, styles)
    return figure


def improvement(runs: Sequence[Run], key: str, method: str | None = None) -> Figure | None:
    """How probably a run of one method (the first unless named) is better than one of each other, with 95% intervals."""
    rows = results.improvement_table(runs, key)
    order = [m for m in method_order(runs) if any(row["first"] == m for row in rows)]
    if len(order) < 2:
        return None
    method = method or order[0]
    rows = [next(r for r in rows if (r["first"], r["second"]) == (method, m)) for m in order
            if any((r["first"], r["second"]) == (method, m) for r in rows)]  # fmt: skip
    figure, (panel,) = _panels(1, width=5.0, height=0.9 + 0.26 * len(rows))
    for y, row in enumerate(rows):
        if row["low"] is not None:
            panel.barh(
                y, row["high"] - row["low"], 0.6, left=row["low"], color=COLOURS[0], alpha=0.45
            )
        panel.plot([row["probability"]] * 2, [y - 0.3, y + 0.3], color="black", lw=1.6)
    panel.axvline(0.5, color=GRAY, ls=":", lw=1)
    panel.set_yticks(range(len(rows)), [row["second"] for row in rows])
    panel.set(xlim=(-0.02, 1.02), ylim=(len(rows) - 0.5, -0.5))
    _common_labels(figure, f"P({method} better than ...), by {label(key)}", "")
    return figure


def write_figures(runs: Sequence[Run], folder: Path, keys: Sequence[str], main: str) -> list[Path]:
    """Everything that the runs allow, as PNG and PDF; returns the PNGs."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []

    def save(name: str, figure: Figure | None) -> None:
        if figure is None:
            return
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=160)
        figure.savefig(path.with_suffix(".pdf"))
        made.append(path)

    with matplotlib.rc_context(STYLE):
        tasks = results.tasks_of(runs)
        envs, noises = (
            list(dict.fromkeys(env for env, _ in tasks)),
            list(dict.fromkeys(noise for _, noise in tasks)),
        )
        for key in [
            k for k in ("score", "states_share") if any(run.curve(k)[0].size for run in runs)
        ]:
            together = len(tasks) <= 6
            for noise in [None] if together else noises:
                save(
                    f"curves-{key}" + (f"-{noise}" if noise else ""),
                    learning_curves(runs, key, noise=noise),
                )
            for noise in [n for n in noises if n != "none"]:
                save(f"noise-{key}-{noise}", noise_curves(runs, key, noise))
        for key in keys:
            save(f"measure-{key.replace(':', '-')}", by_condition(runs, key))
        for env in envs:
            for noise in noises:
                save(f"ablation-{env}-{noise}".replace("/", "_"), ablation_panels(runs, env, noise))
        save(f"aggregates-{main.replace(':', '-')}", aggregates(runs, main))
        save(f"efficiency-{main.replace(':', '-')}", sample_efficiency(runs, main))
        save(f"profiles-{main.replace(':', '-')}", profiles(runs, main))
        save(f"improvement-{main.replace(':', '-')}", improvement(runs, main))
    return made


def _draw_curve(
    panel: Any, runs: Sequence[Run], key: str, style: dict[str, Any], band: float = 0.18
) -> None:
    curves = [run.curve(key) for run in runs]
    curves = [(steps, values) for steps, values in curves if np.isfinite(values).any()]
    if not curves:
        return
    grid = np.linspace(
        min(steps[0] for steps, _ in curves), max(steps[-1] for steps, _ in curves), POINTS
    )
    found, _ = statistics.curve(
        {"": [statistics.resample(*curve, grid) for curve in curves]},
        reps=400,
        bounds=results.bounds(key),
    )
    style = {k: v for k, v in style.items() if k != "marker"}
    panel.plot(grid, found.value, **style)
    panel.fill_between(grid, found.low, found.high, color=style["color"], alpha=band, lw=0)


def _panels(
    count: int, *, columns: int = 3, width: float = 2.9, height: float = 2.2, sharey: bool = False
) -> tuple[Figure, list[Any]]:
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(columns * width, 4.5), rows * height + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).flatten().tolist()
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def _common_labels(figure: Figure, x: str, y: str) -> None:
    """x below the lowest panels (a label of the whole figure would lie on the legend), y beside all of them."""
    for panel in figure.axes:
        place = panel.get_subplotspec()
        if place is not None and place.is_last_row():
            panel.set_xlabel(x)
    if y:
        figure.supylabel(y, fontsize=9)


def _legend(figure: Figure, styles: dict[str, dict[str, Any]]) -> None:
    """Below the panels, for which the figure grows."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    longest = max(len(name) for name in styles)
    columns = max(1, min(len(styles), int(width / (0.55 + 0.065 * longest))))
    figure.set_size_inches(width, height + 0.1 + 0.19 * math.ceil(len(styles) / columns))

    lines = [
        Line2D([], [], **{k: v for k, v in s.items() if k != "marker" or s.get("ls") == ""})
        for s in styles.values()
    ]
    figure.legend(
        lines,
        list(styles),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.2,
    )


def _steps_formatter() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")
