"""Figures of `ssedb theory`, a function for each section, from the data in theory.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from ssedb.compare.style import BLUE, GRAY, GREEN, ORANGE
from ssedb.theory.gain import WIDEST

MARKS = ("o", "s", "^", "D")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_theorem1(data: dict[str, Any], path: Path) -> None:
    """Plot sqrt(I) between the two UCB bonuses of Theorem 1."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    axes.axhspan(np.sqrt(0.5), 1, color=GRAY, alpha=0.15, linewidth=0)
    axes.axhline(1, color="black", linewidth=1)
    axes.axhline(np.sqrt(0.5), color="black", linewidth=1, linestyle="--")
    axes.annotate(r"upper bound, $\sqrt{c/2}\,u$", (0.02, 1), (0, 4), textcoords="offset points")
    axes.annotate(
        r"lower bound, $\sqrt{c/4}\,u$", (0.02, np.sqrt(0.5)), (0, 4), textcoords="offset points"
    )
    for (name, drawn), colour, mark in zip(
        reversed(data.items()), (ORANGE, GREEN, BLUE), MARKS, strict=False
    ):
        axes.scatter(
            drawn["squared_width"],
            drawn["ratio"],
            s=9,
            color=colour,
            marker=mark,
            label=name,
            linewidths=0,
        )
    axes.axvline(1, color=GRAY, linewidth=1, linestyle=":")
    axes.annotate(
        "the assumptions\nend here",
        (1, 0.76),
        (-4, 0),
        textcoords="offset points",
        ha="right",
        color=GRAY,
    )
    axes.axvline(WIDEST, color=GRAY, linewidth=1, linestyle=":")
    axes.annotate(
        "the lower bound\nends here", (WIDEST, 0.9), (4, 0), textcoords="offset points", color=GRAY
    )
    axes.set(xscale="log", xlim=(0.02, 12), ylim=(0.48, 1.06))
    axes.set(
        xlabel=r"$u^2 = \eta^\top \Lambda^{-1} \eta$", ylabel=r"$\sqrt{I}\;/\;(\sqrt{c/2}\,u)$"
    )
    axes.legend(title="feature norms at most, lambda", loc="lower left", framealpha=1)
    _save(figure, path)


def plot_theorem2(data: dict[str, Any], path: Path) -> None:
    """Plot the DB-bonus beside the count bonus of Theorem 2, and its shortfall."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    counts = np.array(data["counts"])
    series = [name for name in data if name != "counts"]
    for name, colour, mark in zip(series, (BLUE, ORANGE, GREEN), MARKS, strict=False):
        bonus, predicted = np.array(data[name]["bonus"]), np.array(data[name]["count_bonus"])
        left.plot(
            counts + 1, bonus, marker=mark, markersize=4, color=colour, linestyle="none", label=name
        )
        left.plot(counts + 1, predicted, color=colour, linewidth=1)
        right.plot(
            counts + 1, 1 - bonus / predicted, marker=mark, markersize=4, color=colour, label=name
        )
    right.plot(
        counts + 1, 1 / (4 * (counts + 1)), color="black", linestyle=":", label="1 / (4 (N + 1))"
    )
    left.set(
        xscale="log",
        yscale="log",
        xlabel="N + 1",
        ylabel="bonus",
        title="DB-bonus (marks), count bonus (lines)",
    )
    right.set(
        xscale="log",
        yscale="log",
        xlabel="N + 1",
        ylabel="1 - ratio",
        title="how far the DB-bonus falls short",
    )
    left.legend()
    right.legend()
    _save(figure, path)


def plot_infonce(data: dict[str, Any], path: Path) -> None:
    """Plot I_nce + log N against the mutual information."""
    figure, axes = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    rows = data["rows"]
    top = max(row["truth"] for row in rows) * 1.05
    axes.plot([0, top], [0, top], color="black", linewidth=1)
    axes.annotate(
        "all there is", (0.62 * top, 0.62 * top), (-8, 8), textcoords="offset points", ha="right"
    )
    for size, colour, mark in zip(
        sorted({row["batch"] for row in rows}), (BLUE, ORANGE, GREEN), MARKS, strict=False
    ):
        for critic, style in (("best", "-"), ("trained", "--")):
            own = [row for row in rows if row["batch"] == size and row["critic"] == critic]
            truth, value, error = ([row[key] for row in own] for key in ("truth", "value", "error"))
            looks: dict[str, Any] = dict(color=colour, marker=mark, linestyle=style, markersize=4)
            label = f"N = {size}, {critic} critic"
            axes.errorbar(truth, value, 3 * np.array(error), label=label, **looks)
        axes.axhline(np.log(size), color=colour, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"log {size}",
            (top, np.log(size)),
            (0, 3),
            textcoords="offset points",
            ha="right",
            color=colour,
        )
    axes.set(
        xlabel="mutual information (nats)",
        ylabel="I_nce + log N (nats)",
        xlim=(0, top),
        ylim=(-0.3, top),
    )
    axes.legend(loc="upper left")
    _save(figure, path)


BONUSES = {
    "ucb": ("UCB", BLUE, "-"),
    "db": ("DB", ORANGE, "-"),
    "count": ("count", GREEN, "--"),
    "none": ("none", GRAY, ":"),
}


def plot_regret(data: dict[str, Any], path: Path) -> None:
    """Plot the summed regret of each bonus at its best beta, and the search for that beta."""
    worlds = data["worlds"]
    figure, (top, bottom) = plt.subplots(
        2, len(worlds), figsize=(4 * len(worlds), 7), layout="constrained", squeeze=False
    )
    for axes, below, (name, world) in zip(top, bottom, worlds.items(), strict=True):
        lines = world["curves"]
        for kind, (label, colour, style) in BONUSES.items():
            line = lines[kind]
            axes.fill_between(
                lines["episodes"], line["low"], line["high"], color=colour, alpha=0.2, linewidth=0
            )
            # In a tabular MDP the count bonus lies on the UCB bonus.
            width = 3.5 if kind == "ucb" else 1.5
            axes.plot(
                lines["episodes"],
                line["mean"],
                color=colour,
                linestyle=style,
                linewidth=width,
                label=label,
            )
            if kind in world["search"]:
                size = dict(linewidth=width, markersize=2 + width)
                below.plot(
                    data["betas"],
                    world["search"][kind],
                    color=colour,
                    linestyle=style,
                    marker="o",
                    **size,
                )
        axes.set(xscale="log", yscale="log", xlabel="episodes", ylabel="summed regret", title=name)
        axes.set(
            xlim=(data["episodes"] / 100, data["episodes"]),
            ylim=(lines["ucb"]["mean"][-1] / 60, None),
        )
        below.set(
            xscale="log",
            xlabel="beta",
            ylabel="summed regret",
            title="search, other seeds",
            ylim=(0, None),
        )
        below.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        below.set_xticks([], minor=True)
    top[0].legend(title="bonus")
    _save(figure, path)


KINDS = {
    "practical": ("practical: KL to N(0, I)", BLUE, "o"),
    "marginal": ("KL to the marginal seen", ORANGE, "s"),
    "linear": ("Theorem 1 over E z", GREEN, "^"),
}
STYLES = ("-", "--", ":")


def plot_network(data: dict[str, Any], path: Path) -> None:
    """Plot rank correlation along training, calibration at the end, and the terms of the KL."""
    titles = {"river": "tabular river", "rooms": "rooms-small"}
    figure, grid = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for (ranks, calibration, nats), (world, variants) in zip(
        grid, data["runs"].items(), strict=True
    ):
        for (variant, runs), style in zip(variants.items(), STYLES, strict=False):
            steps = [row["steps"] for row in runs[0]["rows"]]
            for kind, (_, colour, _) in KINDS.items():
                mean = np.mean([[row[kind] for row in run["rows"]] for run in runs], 0)
                ranks.plot(steps, mean, color=colour, linestyle=style)
            for term, colour in (("upper", BLUE), ("inside", ORANGE)):
                mean = np.mean([[row[term] for row in run["rows"]] for run in runs], 0)
                nats.plot(steps, mean, color=colour, linestyle=style)
            ranks.plot([], [], color="black", linestyle=style, label=variant)
        bins = next(iter(variants.values()))[0]["calibration"]
        exact = [row["exact"] for row in bins]
        for kind, (label, colour, mark) in KINDS.items():
            means, spreads = np.transpose([row[kind] for row in bins])
            calibration.errorbar(
                exact,
                means,
                spreads,
                color=colour,
                marker=mark,
                markersize=4,
                capsize=2,
                linewidth=1,
            )
            ranks.plot([], [], color=colour, label=label)
        calibration.plot(
            exact,
            [row["exact_over_mean"] for row in bins],
            color="black",
            linewidth=1.5,
            label="perfect",
        )
        ranks.axhline(0, color=GRAY, linewidth=0.8)
        ranks.set(
            xlabel="steps",
            ylabel="rank correlation with the exact gain",
            title=titles[world],
            ylim=(-1, 1.05),
        )
        calibration.set(
            xlabel="exact information gain, root", ylabel="bonus / its mean", xscale="log"
        )
        calibration.set_title("calibration at the end, ours")
        nats.set(
            xlabel="steps",
            ylabel="nats",
            yscale="log",
            title="KL to N(0, I): blue; its information: orange",
        )
        calibration.legend()
    grid[0][0].legend(fontsize=8)
    _save(figure, path)


FIGURES = {
    "theorem1": plot_theorem1,
    "theorem2": plot_theorem2,
    "infonce": plot_infonce,
    "regret": plot_regret,
    "network": plot_network,
}
