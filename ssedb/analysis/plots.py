"""Pictures of the analyses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from ssedb.analysis.probe import Probe, Transitions
    from ssedb.config import TrainConfig
    from ssedb.demo import Result
    from ssedb.envs.rooms import World

BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#777777"
METHOD_COLOURS = {"db": BLUE, "rnd": ORANGE, "random": GRAY}


def plot_probe(
    probe: Probe, rewards: Tensor, choices: Tensor | None, world: World | None, data: Transitions, path: Path
) -> None:
    """The bonus's fall under repetition and what it sees; on Rooms also the bonus against visits and over the map."""
    known = world is not None
    figure, axes = plt.subplots(2 if known else 1, 2, figsize=(10, 8 if known else 4), layout="constrained", squeeze=False)
    fall, shares = axes[-1]
    fall.plot(probe.fall_steps, np.array(probe.fall_clean) / probe.fall_clean[0], "o-", color=BLUE, label="clean")
    fall.plot(probe.fall_steps, np.array(probe.fall_noisy) / probe.fall_noisy[0], "s--", color=ORANGE, label=probe.noise)
    fall.set(xlabel="gradient steps on the same transitions", ylabel="bonus, start = 1", title="fall under repetition")
    fall.legend()
    bars = {
        "noise in the bonus": probe.bonus_noise_share,
        "noise in the features": probe.feature_noise_share,
        "room named": probe.room_accuracy,
        "place explained": probe.place_explained,
        "noise explained": probe.noise_explained,
    }
    bars = {name: value for name, value in bars.items() if value is not None}
    colours = [ORANGE if "noise" in name else BLUE for name in bars]
    shares.barh(list(bars), list(bars.values()), color=colours)
    shares.set(xlim=(0, 1), title="what it sees: noise (orange)" + (", truth (blue)" if known else ""))
    shares.invert_yaxis()
    if world is not None and choices is not None and data.states is not None:
        visits, chart = axes[0]
        counts = choices[data.states, data.actions].cpu()
        visits.scatter(counts.numpy() + 1, rewards.cpu().numpy(), s=6, color=BLUE, alpha=0.5, linewidths=0)
        visits.set(xscale="log", xlabel="N(s, a) + 1", ylabel="bonus", title="bonus against visits")
        total, times = np.zeros(world.layout.floor.shape), np.zeros(world.layout.floor.shape)
        for cell, reward in zip((data.states // world.scenes_per_cell).tolist(), rewards.tolist(), strict=True):
            total[world.cells[cell]] += reward
            times[world.cells[cell]] += 1
        mean = np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)
        chart.imshow(world.layout.floor, cmap="gray", vmin=-1, vmax=3)
        figure.colorbar(chart.imshow(mean, cmap="viridis"), ax=chart, label="bonus")
        chart.set(title="bonus over the map", xticks=[], yticks=[])
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_demo(results: list[Result], world: World, config: TrainConfig, path: Path) -> None:
    """Noise share and coverage along training, then where each method went and where its bonus is high."""
    methods = list(dict.fromkeys(result.method for result in results))
    figure = plt.figure(figsize=(12, 8), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    top, bottom = halves
    curves = {"noise_share": "noise in the bonus (0 = blind to it)", "states_share": "share of the reachable states seen"}
    for axes, (name, label) in zip(top.subplots(1, 2), curves.items(), strict=True):
        for method in methods:
            runs = [r for r in results if r.method == method and name in r.rows[-1]]
            for i, run in enumerate(runs):
                steps, values = [row["steps"] for row in run.rows], [row[name] for row in run.rows]
                axes.plot(steps, values, color=METHOD_COLOURS[method], alpha=0.8, label=method if i == 0 else None)
        axes.set(xlabel="agent steps", title=label, ylim=(0, None))
        axes.legend()
    first = {method: next(r for r in results if r.method == method) for method in methods}
    maps = [(f"visits, {m}", np.log10(1 + np.array(first[m].visits)), "magma") for m in methods]
    maps += [
        (f"bonus, {m}", np.array([np.nan if b is None else b for b in first[m].bonus]), "viridis")
        for m in methods
        if first[m].bonus
    ]
    for axes, (title, values, colours) in zip(bottom.subplots(1, len(maps)), maps, strict=True):
        grid = np.full(world.layout.floor.shape, np.nan)
        for cell, value in zip(world.cells, values, strict=True):
            grid[cell] = value
        axes.imshow(world.layout.floor, cmap="gray", vmin=-1, vmax=3)
        bottom.colorbar(axes.imshow(grid, cmap=colours), ax=axes, location="bottom", shrink=0.9)
        axes.set(title=title, xticks=[], yticks=[])
    bottom.supxlabel("visits: log10(1 + N) by cell, first seed; bonus: mean over transitions from each cell", fontsize=9)
    figure.suptitle(f"{config.env}, {config.noise} noise, no reward")
    figure.savefig(path, dpi=110)
    plt.close(figure)
