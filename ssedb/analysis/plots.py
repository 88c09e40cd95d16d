"""Pictures of the analyses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from ssedb.analysis.probe import Probe, Transitions
    from ssedb.envs.rooms import World

BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#777777"


def plot_probe(probe: Probe, rewards: Tensor, counts: Tensor, world: World, data: Transitions, path: Path) -> None:
    """Four panels: bonus against visits, its fall under repetition, the shares, and the bonus over the map."""
    figure, ((visits, fall), (shares, chart)) = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
    visits.scatter(counts.numpy() + 1, rewards.numpy(), s=6, color=BLUE, alpha=0.5, linewidths=0)
    visits.set(xscale="log", xlabel="N(s, a) + 1", ylabel="bonus", title="bonus against visits")
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
    shares.set(xlim=(0, 1), title="what it sees: noise (orange), truth (blue)")
    shares.invert_yaxis()
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
