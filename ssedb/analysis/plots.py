"""Figures of the analyses and of the demo."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from ssedb.compare.measures import OF_NOISE, label
from ssedb.compare.style import BLUE, GRAY, GREEN, ORANGE
from ssedb.runs.files import write_figure
from ssedb.thin import evenly_spaced

if TYPE_CHECKING:
    from ssedb.analysis.episode import BonusTrace, Episode
    from ssedb.analysis.probe import Probe
    from ssedb.analysis.spikes import Spike
    from ssedb.analysis.tsne import Embedding
    from ssedb.config import TrainConfig
    from ssedb.demo import Result
    from ssedb.envs.rooms.world import World
    from ssedb.transitions import Transitions

SCREEN: dict[str, Any] = dict(cmap="gray", vmin=0, vmax=255)
NUMBERED = 12
"""Points of a t-SNE map whose frames stand below it, at most."""


def _show_cells(axes: Any, world: World, values: list[float], **colours: Any) -> Any:
    """Draw a value for each cell of a Rooms world, NaN for none, over its floor."""
    grid = np.full(world.layout.floor.shape, np.nan)
    for cell, value in zip(world.cells, values, strict=True):
        grid[cell] = value
    axes.imshow(world.layout.floor, cmap="gray", vmin=-1, vmax=3)
    axes.set(xticks=[], yticks=[])
    return axes.imshow(grid, **colours)


def plot_probe(
    probe: Probe,
    rewards: Tensor,
    pair_visits: Tensor | None,
    world: World | None,
    data: Transitions,
    path: Path,
    title: str,
) -> None:
    """Plot the fall of the bonus under repetition, and the shares of noise and state in it.

    On Rooms, plot also the bonus against visits and over the cells.

    Args:
        probe: the measures.
        rewards: bonus of the M transitions under one draw of the noise, [M].
        pair_visits: N(s, a), int64 [states, actions]; None if the run has no visit counts.
        world: the world of Rooms; None elsewhere.
        data: the transitions.
        path: PNG file to write.
        title: names the run.
    """
    rows = 1 if world is None else 2
    figure = Figure(figsize=(11, 4 * rows), layout="constrained")
    figure.suptitle(textwrap.fill(title, 110))  # names of a sweep's folders are long
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.15)  # inches, between the labels of one panel and the next panel
    axes = figure.subplots(rows, 2, squeeze=False)
    fall, shares = axes[-1]
    clean, noisy = (np.array(f) / f[0] for f in (probe.fall_clean, probe.fall_noisy))
    fall.plot(probe.fall_steps, clean, "o-", color=BLUE, label="clean")
    fall.plot(probe.fall_steps, noisy, "s--", color=ORANGE, label=probe.noise)
    fall.set(xlabel="train steps on the same transitions", ylabel="bonus, start = 1")
    fall.set_title("fall under repetition")
    fall.legend()
    _plot_shares(shares, probe)
    if world is not None and pair_visits is not None and data.states is not None:
        visits, chart = axes[0]
        counts = pair_visits[data.states, data.actions].cpu().numpy()
        bonuses = rewards.cpu().numpy()
        visits.scatter(counts + 1, bonuses, s=6, color=BLUE, alpha=0.5, linewidths=0)
        visits.set(xscale="log", xlabel="N(s, a) + 1", ylabel="bonus", title="bonus against visits")
        cells = (data.states // world.scenes_per_cell).cpu().numpy()
        times, total = (np.bincount(cells, w, len(world.cells)) for w in (None, bonuses))
        mean = np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)
        shown = _show_cells(chart, world, mean.tolist(), cmap="viridis")
        figure.colorbar(shown, ax=chart, label="bonus")
        chart.set_title("bonus over the map")
    write_figure(figure, path, dpi=120)


def _plot_shares(axes: Any, probe: Probe) -> None:
    """Draw a bar for each share that the probe has, of noise in orange, of the state in blue."""
    drawn = dict.fromkeys(OF_NOISE, ORANGE) | {"room_accuracy": BLUE, "place_explained": BLUE}
    shares = [
        (textwrap.fill(label(key), 18), value, colour)
        for key, colour in drawn.items()
        if (value := getattr(probe, key)) is not None
    ]
    names, values, colours = zip(*shares, strict=True)
    bars = axes.barh(names, values, 0.6, color=colours)
    axes.bar_label(bars, fmt="%.2f", padding=3)  # a bar of 0 is not seen
    # Three rows at least, so that a single bar does not fill the panel.
    axes.set(xlim=(0, 1.12), xticks=np.linspace(0, 1, 6), ylim=(max(len(names), 3) - 0.5, -0.5))
    title = "share of noise (orange)" + (" and of the true state (blue)" if BLUE in colours else "")
    if probe.feature_noise_share is None:
        title = "share of noise; the bonus has no features to probe"
    axes.set_title(title)


def plot_demo(results: list[Result], world: World, config: TrainConfig, path: Path) -> None:
    """Plot rooms reached and noise in the bonus along training, and the visits of each cell."""
    agents = list(dict.fromkeys(result.agent for result in results))[::-1]
    colours = dict(zip(agents, (GRAY, GREEN, ORANGE, BLUE), strict=True))
    rooms = world.layout.size.rooms**2
    figure = Figure(figsize=(12, 7.5), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    top, bottom = halves
    curves = {
        "rooms": (f"rooms reached, of {rooms}", rooms + 0.5),
        "noise_share": ("noise in the bonus (0 = blind to it)", 1),
    }
    for axes, (name, (title, most)) in zip(top.subplots(1, 2), curves.items(), strict=True):
        for agent in agents:
            runs = [r for r in results if r.agent == agent and name in r.rows[-1]]
            if not runs:
                continue
            steps = [row["steps"] for row in runs[0].rows]
            values = np.array([[row[name] for row in run.rows] for run in runs])  # [seeds, rows]
            axes.plot(steps, values.T, color=colours[agent], alpha=0.35, lw=0.9)
            style = "--" if agent == agents[0] else "-"
            axes.plot(steps, values.mean(0), style, color=colours[agent], lw=2, label=agent)
        axes.set(xlabel="agent steps", title=title, ylim=(0, most))
        axes.legend()
    first = {agent: next(r for r in results if r.agent == agent) for agent in agents}
    visits = {agent: np.log10(1 + np.array(run.visits)) for agent, run in first.items()}
    most = max(values.max() for values in visits.values())
    panels = bottom.subplots(1, len(agents))
    for axes, (agent, run) in zip(panels, first.items(), strict=True):
        shown = _show_cells(axes, world, visits[agent].tolist(), cmap="magma", vmin=0, vmax=most)
        axes.set_title(f"{agent}: {run.rows[-1]['rooms']:.0f} rooms")
    bottom.colorbar(shown, ax=list(panels), label="log10(1 + visits)", shrink=0.8)
    about = "visits of each cell, first seed; the way begins in the upper left"
    bottom.supxlabel(about, fontsize=9)
    noise = f"{config.noise_label} where there is noise"
    figure.suptitle(f"{config.env}, no reward, {noise}; thin lines: each seed")
    write_figure(figure, path, dpi=110)


def plot_spike_curve(episode: Episode, trace: BonusTrace, spikes: list[Spike], path: Path) -> None:
    """Plot the bonus along an episode, with numbered spikes."""
    from ssedb.analysis.spikes import GAP, MOST

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(trace.bonus, color=BLUE, lw=0.9)
    axes.margins(x=0.01, y=0.12)
    _number_spikes(axes, spikes, ORANGE, 9)
    for fill, name in (("full", "clear spike"), ("none", "may be noise")):
        axes.plot([], [], "o", color=ORANGE, fillstyle=fill, label=name)
    axes.legend(loc="lower right", ncols=2, fontsize=8)
    rule = (
        f"numbered: the {MOST} highest peaks above the running median, at most; "
        f"not those closer than {GAP} steps to a higher numbered one"
    )
    axes.set(xlabel=f"step of the episode\n{rule}", ylabel="bonus")
    axes.set_title(f"{trace.bonus_name} on {_about(episode)}")
    write_figure(figure, path, dpi=120)


def _about(episode: Episode) -> str:
    config = episode.config
    return f"{config.env}, noise {config.noise_label}, agent of step {episode.trained:,}"


def plot_spike_frames(episode: Episode, spikes: list[Spike], path: Path) -> None:
    """Plot the frame at each spike, numbered as in the curve."""
    columns = min(4, len(spikes))
    rows = -(-len(spikes) // max(columns, 1))
    size = (2.3 * columns, 2.55 * rows) if spikes else (5, 1.2)
    figure = Figure(figsize=size, layout="constrained")
    if not spikes:
        figure.text(0.5, 0.5, "no spike rises above the noise of the curve", ha="center")
    for number, spike in enumerate(spikes, start=1):
        axes = figure.add_subplot(rows, columns, number)
        axes.imshow(episode.seen[spike.step].numpy(), **SCREEN)
        doubt = "" if spike.clear else " (noise?)"
        axes.set_title(f"{number}: step {spike.step}{doubt}", fontsize=9)
        axes.axis("off")
    write_figure(figure, path, dpi=110)


def _number_spikes(axes: Any, spikes: list[Spike], colour: str, size: int) -> None:
    text: dict[str, Any] = dict(textcoords="offset points", ha="center", fontsize=size)
    for number, spike in enumerate(spikes, start=1):
        place, fill = (spike.step, spike.bonus), "full" if spike.clear else "none"
        axes.plot(*place, "o", color=colour, ms=size / 2, fillstyle=fill)
        axes.annotate(str(number), place, (0, size / 2), **text)


def curve_strips(
    bonus: np.ndarray, spikes: list[Spike], width: int
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Draw the curve of a bonus [T] as strips of pixels.

    Returns:
        The strip in colour and in gray, each uint8 [H, width, 3], and the column of every step.
    """
    strips = []
    for colour, dot in ((BLUE, ORANGE), ("#bbbbbb", "#bbbbbb")):
        figure = Figure(figsize=(width / 100, 1.2), dpi=100)
        canvas: Any = FigureCanvasAgg(figure)
        axes = figure.add_axes((0.02, 0.06, 0.96, 0.72))
        axes.plot(bonus, color=colour, lw=1)
        axes.set_xlim(0, max(len(bonus) - 1, 1))
        axes.axis("off")
        _number_spikes(axes, spikes, dot, 7)
        canvas.draw()
        strips.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        columns = axes.transData.transform([(t, 0) for t in range(len(bonus))])[:, 0]
    return strips[0], strips[1], [min(max(round(float(x)), 1), width - 1) for x in columns]


def plot_embeddings(episode: Episode, maps: list[Embedding], path: Path) -> None:
    """Plot the maps side by side, coloured by time, with the frames of numbered points below."""
    steps = maps[0].steps
    chosen = evenly_spaced(len(steps), NUMBERED)
    figure = Figure(figsize=(5 * len(maps), 6.4), layout="constrained")
    ratios = (4.4, 1.6 * 6 / len(chosen) if len(maps) < 3 else 1.5)
    halves: Any = figure.subfigures(2, 1, height_ratios=ratios)
    top, bottom = halves
    panels = top.subplots(1, len(maps), squeeze=False)[0]
    circle = dict(boxstyle="circle,pad=0.15", facecolor="white", edgecolor="black", lw=0.6)
    label: dict[str, Any] = dict(fontsize=8, ha="center", va="center", bbox=circle, zorder=3)
    for axes, chart in zip(panels, maps, strict=True):
        points = chart.points.T
        axes.plot(*points, color="#999999", lw=0.6, alpha=0.7, zorder=1)
        dots = axes.scatter(*points, c=chart.steps, cmap="viridis", s=14, linewidths=0, zorder=2)
        for number, i in enumerate(chosen, start=1):
            axes.annotate(str(number), chart.points[i], **label)
        ratio = "-" if chart.ratio is None else f"{chart.ratio:.2f}"
        axes.set_title(f"{chart.title}\nconsecutive / random distance {ratio}")
        axes.set(xticks=[], yticks=[])
    top.colorbar(dots, ax=list(panels), label="step of the episode", shrink=0.9)
    strip = bottom.subplots(1, len(chosen), squeeze=False)[0]
    for number, (axes, step) in enumerate(zip(strip, steps[chosen], strict=True), start=1):
        axes.imshow(episode.seen[step].numpy(), **SCREEN)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{number}: {step}", fontsize=8)
    figure.suptitle(f"an episode of {_about(episode)} (t-SNE)")
    write_figure(figure, path, dpi=120)
