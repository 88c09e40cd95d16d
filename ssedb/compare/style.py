"""The look of every figure: colours, lines, panels, labels, legends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from ssedb.compare.results import method_looks

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is too pale for lines.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#56B4E9", "#E69F00", "#000000")
GRAY = "#777777"
LINES, MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D", "v", "P", "X")
NOISE_LOOKS = {
    "none": ("#444444", "o"),
    "random-box": ("#882255", "D"),
    "pixel": ("#999933", "^"),
    "noisy-tv": ("#332288", "s"),
    "sticky": ("#DC6B7A", "v"),
    "clouds": ("#6699CC", "P"),
    "flicker": ("#117733", "X"),
    "gaussian-dims": ("#AA4499", "^"),
    "tv-dims": ("#8C5A2B", "s"),
}
"""Colour and marker of each noise, in every figure; no method has one of these colours."""
OTHER_NOISES = (("#44AA99", "P"), ("#B8860B", "X"), ("#7B6BD6", "o"))
"""Looks of noises that have none of their own, before those of noises that a figure lacks."""

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
    """Choose a colour, a line and a marker for each method; the random agent is gray."""
    looks = method_looks(methods)
    return {method: _style(looks[method]) for method in methods}


def noise_styles(noises: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Choose a colour and a marker for each noise; known noises have theirs in every figure."""
    absent = (look for noise, look in NOISE_LOOKS.items() if noise not in noises)
    free = itertools.cycle([*OTHER_NOISES, *absent])
    looks = {noise: NOISE_LOOKS.get(noise) or next(free) for noise in noises}
    return {noise: {"color": c, "marker": m, "ls": ""} for noise, (c, m) in looks.items()}


def _style(look: int) -> dict[str, Any]:
    if look < 0:
        return {"color": GRAY, "ls": "-", "marker": "x"}
    round_, colour = divmod(look, len(COLOURS))
    line, marker = LINES[round_ % len(LINES)], MARKERS[round_ % len(MARKERS)]
    return {"color": COLOURS[colour], "ls": line, "marker": marker}


def panels(
    count: int, *, columns: int = 0, width: float = 2.9, height: float = 2.2, sharey: bool = False
) -> tuple[Figure, list[Any]]:
    """Make a figure of so many panels, in rows of three unless given; return it and them."""
    columns = min(columns or (2 if count == 4 else 3), count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(columns * width, 4.5), rows * height + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).flatten().tolist()
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes[:count]


def label_axes(figure: Figure, x: str, y: str) -> None:
    """Label x below the lowest panels (a figure's label would lie on the legend), y beside all."""
    for panel in figure.axes:
        place = panel.get_subplotspec()
        if place is not None and place.is_last_row():
            panel.set_xlabel(x)
    if y:
        figure.supylabel(y, fontsize=9)


def label_steps(figure: Figure, y: str) -> None:
    """Label x as steps, 1000000 written as 1M, and y."""
    for panel in figure.axes:
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    label_axes(figure, "agent steps", y)


def add_legend(figure: Figure, styles: dict[str, dict[str, Any]]) -> None:
    """Add a legend below the panels, for which the figure grows."""
    width, height = figure.get_size_inches()
    longest = max(len(name) for name in styles)
    columns = max(1, min(len(styles), int(width / (0.55 + 0.065 * longest))))
    figure.set_size_inches(width, height + 0.1 + 0.19 * math.ceil(len(styles) / columns))
    lines = [
        Line2D([], [], **{k: v for k, v in s.items() if k != "marker" or s.get("ls") == ""})
        for s in styles.values()
    ]
    place: dict[str, Any] = dict(loc="outside lower center", ncols=columns)
    figure.legend(lines, list(styles), frameon=False, handlelength=2.2, **place)
