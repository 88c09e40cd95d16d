"""Figures of the analyses and of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from ssedb.analysis.episode import BonusTrace, Episode
    from ssedb.analysis.probe import Probe, Transitions
    from ssedb.analysis.spikes import Spike
    from ssedb.analysis.tsne import Embedding
    from ssedb.config import TrainConfig
    from ssedb.demo import Result
    from ssedb.envs.rooms.world import World

BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#777777"


def plot_probe(
    probe: Probe,
    rewards: Tensor,
    pair_visits: Tensor | None,
    world: World | None,
    data: Transitions,
    path: Path,
) -> None:
    """Plot the fall of the bonus under repetition, and the shares of noise and state in it.

    On Rooms, plot also the bonus against visits and over the cells.
    """
    known = world is not None
    figure, axes = plt.subplots(
        2 if known else 1, 2, figsize=(10, 8 if known else 4), layout="constrained", squeeze=False
    )
    fall, shares = axes[-1]
    fall.plot(
        probe.fall_steps,
        np.array(probe.fall_clean) / probe.fall_clean[0],
        "o-",
        color=BLUE,
        label="clean",
    )
    fall.plot(
        probe.fall_steps,
        np.array(probe.fall_noisy) / probe.fall_noisy[0],
        "s--",
        color=ORANGE,
        label=probe.noise,
    )
    fall.set(
        xlabel="gradient steps on the same transitions",
        ylabel="bonus, start = 1",
        title="fall under repetition",
    )
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
    shares.set(
        xlim=(0, 1), title="what it sees: noise (orange)" + (", true state (blue)" if known else "")
    )
    shares.invert_yaxis()
    if world is not None and pair_visits is not None and data.states is not None:
        visits, chart = axes[0]
        counts = pair_visits[data.states, data.actions].cpu()
        visits.scatter(
            counts.numpy() + 1, rewards.cpu().numpy(), s=6, color=BLUE, alpha=0.5, linewidths=0
        )
        visits.set(xscale="log", xlabel="N(s, a) + 1", ylabel="bonus", title="bonus against visits")
        total, times = np.zeros(world.layout.floor.shape), np.zeros(world.layout.floor.shape)
        for cell, reward in zip(
            (data.states // world.scenes_per_cell).tolist(), rewards.tolist(), strict=True
        ):
            total[world.cells[cell]] += reward
            times[world.cells[cell]] += 1
        mean = np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)
        chart.imshow(world.layout.floor, cmap="gray", vmin=-1, vmax=3)
        figure.colorbar(chart.imshow(mean, cmap="viridis"), ax=chart, label="bonus")
        chart.set(title="bonus over the map", xticks=[], yticks=[])
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_demo(results: list[Result], world: World, config: TrainConfig, path: Path) -> None:
    """Plot rooms reached and noise in the bonus along training, and the visits of each cell."""
    agents = list(dict.fromkeys(result.agent for result in results))[::-1]
    colours = dict(zip(agents, (GRAY, GREEN, ORANGE, BLUE), strict=True))
    rooms = world.layout.size.rooms**2
    figure = plt.figure(figsize=(12, 7.5), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    top, bottom = halves
    curves = {
        "rooms": f"rooms reached, of {rooms}",
        "noise_share": "noise in the bonus (0 = blind to it)",
    }
    for axes, (name, title) in zip(top.subplots(1, 2), curves.items(), strict=True):
        for agent in agents:
            runs = [r for r in results if r.agent == agent and name in r.rows[-1]]
            if not runs:
                continue
            steps = [row["steps"] for row in runs[0].rows]
            values = np.array([[row[name] for row in run.rows] for run in runs])  # [seeds, rows]
            axes.plot(steps, values.T, color=colours[agent], alpha=0.35, linewidth=0.9)
            style = "--" if agent == agents[0] else "-"
            axes.plot(steps, values.mean(0), style, color=colours[agent], linewidth=2, label=agent)
        axes.set(xlabel="agent steps", title=title, ylim=(0, rooms + 0.5 if name == "rooms" else 1))
        axes.legend()
    first = {agent: next(r for r in results if r.agent == agent) for agent in agents}
    most = max(np.log10(1 + max(run.visits)) for run in first.values())
    panels = bottom.subplots(1, len(agents))
    for axes, (agent, run) in zip(panels, first.items(), strict=True):
        grid = np.full(world.layout.floor.shape, np.nan)
        for cell, visits in zip(world.cells, run.visits, strict=True):
            grid[cell] = np.log10(1 + visits)
        axes.imshow(world.layout.floor, cmap="gray", vmin=-1, vmax=3)
        shown = axes.imshow(grid, cmap="magma", vmin=0, vmax=most)
        axes.set(title=f"{agent}: {run.rows[-1]['rooms']:.0f} rooms", xticks=[], yticks=[])
    bottom.colorbar(shown, ax=list(panels), label="log10(1 + visits)", shrink=0.8)
    bottom.supxlabel(
        "visits of each cell, first seed; the way begins in the upper left", fontsize=9
    )
    figure.suptitle(
        f"{config.env}, no reward, {config.noise} where there is noise; thin lines: each seed"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_spike_curve(episode: Episode, trace: BonusTrace, spikes: list[Spike], path: Path) -> None:
    """Plot the bonus along an episode, with numbered spikes."""
    figure, axes = plt.subplots(figsize=(11, 3.6), layout="constrained")
    axes.plot(trace.bonus, color=BLUE, linewidth=0.9)
    axes.margins(x=0.01, y=0.12)
    _number_spikes(axes, spikes, ORANGE, 9)
    for clear, label in ((True, "clear spike"), (False, "may be noise")):
        axes.plot([], [], "o", color=ORANGE, fillstyle="full" if clear else "none", label=label)
    axes.legend(loc="lower right", ncols=2, fontsize=8)
    config = episode.config
    agent = f"agent of step {episode.trained:,}"
    title = f"{trace.bonus_name} on {config.env}, noise {config.noise}, {agent}"
    axes.set(xlabel="step of the episode", ylabel="bonus", title=title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_spike_frames(episode: Episode, spikes: list[Spike], path: Path) -> None:
    """Plot the frame at each spike, numbered as in the curve."""
    if not spikes:
        figure, axes = plt.subplots(figsize=(5, 1.2), layout="constrained")
        axes.text(0.5, 0.5, "no spike rises above the noise of the curve", ha="center")
        axes.axis("off")
    else:
        columns = min(4, len(spikes))
        rows = -(-len(spikes) // columns)
        figure, grid = plt.subplots(
            rows, columns, figsize=(2.3 * columns, 2.55 * rows), layout="constrained", squeeze=False
        )
        for axes in grid.flat:
            axes.axis("off")
        for number, (axes, spike) in enumerate(zip(grid.flat, spikes, strict=False), start=1):
            axes.imshow(episode.seen[spike.step].numpy(), cmap="gray", vmin=0, vmax=255)
            axes.set_title(
                f"{number}: step {spike.step}" + ("" if spike.clear else " (noise?)"), fontsize=9
            )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _number_spikes(axes: Any, spikes: list[Spike], colour: str, size: int) -> None:
    for number, spike in enumerate(spikes, start=1):
        place = (spike.step, spike.bonus)
        axes.plot(
            *place,
            "o",
            color=colour,
            markersize=size / 2,
            fillstyle="full" if spike.clear else "none",
        )
        axes.annotate(
            str(number),
            place,
            (0, size / 2),
            textcoords="offset points",
            ha="center",
            fontsize=size,
        )


def curve_strips(
    bonus: np.ndarray, spikes: list[Spike], width: int
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Draw the curve of a bonus [T] as strips of pixels.

    Returns:
        The strip in colour and in gray, each uint8 [H, width, 3], and the column of every step.
    """
    strips = []
    for colour, dot in ((BLUE, ORANGE), ("#bbbbbb", "#bbbbbb")):
        figure = plt.figure(figsize=(width / 100, 1.2), dpi=100)
        axes = figure.add_axes((0.02, 0.06, 0.96, 0.72))
        axes.plot(bonus, color=colour, linewidth=1)
        axes.set_xlim(0, max(len(bonus) - 1, 1))
        axes.axis("off")
        _number_spikes(axes, spikes, dot, 7)
        figure.canvas.draw()
        canvas: Any = figure.canvas
        strips.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        columns = axes.transData.transform([(t, 0) for t in range(len(bonus))])[:, 0]
        plt.close(figure)
    return strips[0], strips[1], [min(max(round(float(x)), 1), width - 1) for x in columns]


def plot_embeddings(episode: Episode, maps: list[Embedding], path: Path, numbers: int = 12) -> None:
    """Plot the maps side by side, coloured by time, with the frames of numbered points below."""
    count = min(numbers, len(maps[0].steps))
    chosen = np.linspace(0, len(maps[0].steps) - 1, count).round().astype(int)
    figure = plt.figure(figsize=(5 * len(maps), 6.4), layout="constrained")
    halves: Any = figure.subfigures(
        2, 1, height_ratios=(4.4, 1.6 * 6 / count if len(maps) < 3 else 1.5)
    )
    top, bottom = halves
    panels = top.subplots(1, len(maps), squeeze=False)[0]
    for axes, chart in zip(panels, maps, strict=True):
        axes.plot(*chart.points.T, color="#999999", linewidth=0.6, alpha=0.7, zorder=1)
        dots = axes.scatter(
            *chart.points.T, c=chart.steps, cmap="viridis", s=14, linewidths=0, zorder=2
        )
        for number, i in enumerate(chosen, start=1):
            frame = dict(
                boxstyle="circle,pad=0.15", facecolor="white", edgecolor="black", linewidth=0.6
            )
            axes.annotate(
                str(number),
                chart.points[i],
                fontsize=8,
                ha="center",
                va="center",
                bbox=frame,
                zorder=3,
            )
        ratio = "-" if chart.ratio is None else f"{chart.ratio:.2f}"
        axes.set(
            title=f"{chart.title}\nconsecutive / random distance {ratio}", xticks=[], yticks=[]
        )
    top.colorbar(dots, ax=list(panels), label="step of the episode", shrink=0.9)
    strip = bottom.subplots(1, count, squeeze=False)[0]
    for number, (axes, i) in enumerate(zip(strip, chosen, strict=True), start=1):
        axes.imshow(episode.seen[maps[0].steps[i]].numpy(), cmap="gray", vmin=0, vmax=255)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{number}: {maps[0].steps[i]}", fontsize=8)
    config = episode.config
    agent = f"agent of step {episode.trained:,}"
    figure.suptitle(f"an episode of {config.env}, noise {config.noise}, {agent} (t-SNE)")
    figure.savefig(path, dpi=120)
    plt.close(figure)
