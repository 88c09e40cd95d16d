"""Figures of `ssedb theory`, a function for each section, from the data in theory.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ssedb.compare.style import BLUE, GRAY, GREEN, MARKERS, ORANGE
from ssedb.runs.files import write_figure
from ssedb.theory.gain import WIDEST

COLOURS = (BLUE, ORANGE, GREEN)
LOGS = dict(xscale="log", yscale="log")


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Make a figure; return it and its axes, [rows, columns]."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _note(
    axes: Any, text: str, at: tuple[float, float], shift: tuple[int, int], **how: Any
) -> None:
    """Write a text some points away from a place of the data."""
    axes.annotate(text, at, shift, textcoords="offset points", **how)


def plot_theorem1(data: dict[str, Any], path: Path) -> None:
    """Plot sqrt(I) between the two UCB bonuses of Theorem 1."""
    figure, [[axes]] = _figure(7, 4.2)
    low = np.sqrt(0.5)
    axes.axhspan(low, 1, color=GRAY, alpha=0.15, lw=0)
    axes.axhline(1, color="black", lw=1)
    axes.axhline(low, color="black", lw=1, ls="--")
    _note(axes, r"upper bound, $\sqrt{c/2}\,u$", (0.02, 1), (0, 4))
    _note(axes, r"lower bound, $\sqrt{c/4}\,u$", (0.02, low), (0, 4))
    looks = zip((ORANGE, GREEN, BLUE), MARKERS, strict=False)
    for (name, part), (colour, mark) in zip(reversed(data.items()), looks, strict=False):
        dots = part["squared_width"], part["ratio"]
        axes.scatter(*dots, s=9, color=colour, marker=mark, label=name, linewidths=0)
    for end in (1, WIDEST):
        axes.axvline(end, color=GRAY, lw=1, ls=":")
    _note(axes, "the assumptions\nend here", (1, 0.76), (-4, 0), ha="right", color=GRAY)
    _note(axes, "the lower bound\nends here", (WIDEST, 0.9), (4, 0), color=GRAY)
    axes.set(xscale="log", xlim=(0.02, 12), ylim=(0.48, 1.06))
    axes.set_xlabel(r"$u^2 = \eta^\top \Lambda^{-1} \eta$")
    axes.set_ylabel(r"$\sqrt{I}\;/\;(\sqrt{c/2}\,u)$")
    axes.legend(title="feature norms at most, lambda", loc="lower left", framealpha=1)
    write_figure(figure, path, dpi=120)


def plot_theorem2(data: dict[str, Any], path: Path) -> None:
    """Plot the DB-bonus beside the count bonus of Theorem 2, and its shortfall."""
    figure, [[left, right]] = _figure(9, 3.8, 1, 2)
    n = np.array(data["counts"]) + 1
    series = [name for name in data if name != "counts"]
    for name, colour, mark in zip(series, COLOURS, MARKERS, strict=False):
        bonus, predicted = np.array(data[name]["bonus"]), np.array(data[name]["count_bonus"])
        look: dict[str, Any] = dict(marker=mark, ms=4, color=colour, label=name)
        left.plot(n, bonus, ls="none", **look)
        left.plot(n, predicted, color=colour, lw=1)
        right.plot(n, 1 - bonus / predicted, **look)
    right.plot(n, 1 / (4 * n), color="black", ls=":", label="1 / (4 (N + 1))")
    left.set(ylabel="bonus", title="DB-bonus (marks), count bonus (lines)")
    right.set(ylabel="1 - ratio", title="how far the DB-bonus falls short")
    for axes in (left, right):
        axes.set(xlabel="N + 1", **LOGS)
        axes.legend()
    write_figure(figure, path, dpi=120)


def plot_infonce(data: dict[str, Any], path: Path) -> None:
    """Plot I_nce + log N against the mutual information."""
    figure, [[axes]] = _figure(6.5, 4.5)
    rows = data["rows"]
    top = max(row["mutual_information"] for row in rows) * 1.05
    axes.plot([0, top], [0, top], color="black", lw=1)
    _note(axes, "all there is", (0.62 * top, 0.62 * top), (-8, 8), ha="right")
    sizes = sorted({row["batch"] for row in rows})
    for size, colour, mark in zip(sizes, COLOURS, MARKERS, strict=False):
        for critic, style in (("best", "-"), ("trained", "--")):
            own = [row for row in rows if row["batch"] == size and row["critic"] == critic]
            exact, value, error = (
                np.array([row[key] for row in own])
                for key in ("mutual_information", "value", "error")
            )
            look: dict[str, Any] = dict(color=colour, marker=mark, ls=style, ms=4)
            axes.errorbar(exact, value, 3 * error, label=f"N = {size}, {critic} critic", **look)
        axes.axhline(np.log(size), color=colour, lw=0.8, ls=":")
        _note(axes, f"log {size}", (top, np.log(size)), (0, 3), ha="right", color=colour)
    axes.set(xlabel="mutual information (nats)", ylabel="I_nce + log N (nats)")
    axes.set(xlim=(0, top), ylim=(-0.3, top))
    axes.legend(loc="upper left")
    write_figure(figure, path, dpi=120)


BONUSES = {
    "ucb": ("UCB", BLUE, "-"),
    "db": ("DB", ORANGE, "-"),
    "count": ("count", GREEN, "--"),
    "none": ("none", GRAY, ":"),
}


def plot_regret(data: dict[str, Any], path: Path) -> None:
    """Plot the summed regret of each bonus at its best beta, and the search for that beta."""
    problems, episodes = data["problems"], data["episodes"]
    figure, (top, bottom) = _figure(4 * len(problems), 7, 2, len(problems))
    for axes, below, (name, problem) in zip(top, bottom, problems.items(), strict=True):
        lines = problem["curves"]
        for kind, (label, colour, style) in BONUSES.items():
            k, line = lines["episodes"], lines[kind]
            # In a tabular MDP the count bonus lies on the UCB bonus.
            look: dict[str, Any] = dict(color=colour, ls=style, lw=3.5 if kind == "ucb" else 1.5)
            axes.fill_between(k, line["low"], line["high"], color=colour, alpha=0.2, lw=0)
            axes.plot(k, line["mean"], label=label, **look)
            if kind in problem["search"]:
                found = problem["search"][kind]
                below.plot(data["betas"], found, marker="o", ms=2 + look["lw"], **look)
        axes.set(xlabel="episodes", ylabel="summed regret", title=name, **LOGS)
        axes.set(xlim=(episodes / 100, episodes), ylim=(lines["ucb"]["mean"][-1] / 60, None))
        below.set(xscale="log", xlabel="beta", ylabel="summed regret", ylim=(0, None))
        below.set_title("search, other seeds")
        below.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        below.set_xticks([], minor=True)
    top[0].legend(title="bonus")
    write_figure(figure, path, dpi=120)


KINDS = {
    "practical": ("practical: KL to N(0, I)", BLUE, "o"),
    "marginal": ("KL to the marginal seen", ORANGE, "s"),
    "linear": ("Theorem 1 over E z", GREEN, "^"),
}
STYLES = ("-", "--", ":")


def plot_network(data: dict[str, Any], path: Path) -> None:
    """Plot rank correlation along training, calibration at the end, and the terms of the KL."""
    titles = {"river": "tabular river", "rooms": "rooms-small"}
    figure, grid = _figure(13, 8, 2, 3)
    for panels, (env, models) in zip(grid, data["runs"].items(), strict=True):
        ranks, calibration, nats = panels
        for (model, runs), style in zip(models.items(), STYLES, strict=False):
            steps = [row["steps"] for row in runs[0]["rows"]]
            lines = [(ranks, kind, colour) for kind, (_, colour, _) in KINDS.items()]
            for axes, key, colour in [*lines, (nats, "upper", BLUE), (nats, "inside", ORANGE)]:
                mean = np.mean([[row[key] for row in run["rows"]] for run in runs], 0)
                axes.plot(steps, mean, color=colour, ls=style)
            ranks.plot([], [], color="black", ls=style, label=model)
        bins = next(iter(models.values()))[0]["calibration"]
        exact, perfect = ([row[key] for row in bins] for key in ("exact", "exact_over_mean"))
        for kind, (label, colour, mark) in KINDS.items():
            means, spreads = np.transpose([row[kind] for row in bins])
            look: dict[str, Any] = dict(color=colour, marker=mark, ms=4, capsize=2, lw=1)
            calibration.errorbar(exact, means, spreads, **look)
            ranks.plot([], [], color=colour, label=label)
        calibration.plot(exact, perfect, color="black", lw=1.5, label="perfect")
        calibration.set(xlabel="exact information gain, root", ylabel="bonus / its mean")
        calibration.set(xscale="log", title="calibration at the end, ours")
        calibration.legend()
        ranks.axhline(0, color=GRAY, lw=0.8)
        ranks.set(xlabel="steps", ylabel="rank correlation with the exact gain", ylim=(-1, 1.05))
        ranks.set_title(titles[env])
        nats.set(xlabel="steps", ylabel="nats", yscale="log")
        nats.set_title("KL to N(0, I): blue; its information: orange")
    grid[0][0].legend(fontsize=8)
    write_figure(figure, path, dpi=120)


FIGURES = {
    "theorem1": plot_theorem1,
    "theorem2": plot_theorem2,
    "infonce": plot_infonce,
    "regret": plot_regret,
    "network": plot_network,
}
