"""Where along an episode the bonus spikes, and what is on the screen there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import find_peaks
from scipy.stats import norm

from ssedb.analysis.episode import Episode, Reading, play_episode, read_episode
from ssedb.runs.evaluation import write_video
from ssedb.runs.files import write_json
from ssedb.runs.progress import Progress, silent
from ssedb.terminal import plural

MOST = 16
GAP = 15
"""Spikes are at least so many steps apart, and a clip shows so many frames after each."""
TREND = 61
"""Steps over which the median is taken that a spike must rise above."""
LEAST, CHANCE = 1.0, 0.01
MAD_TO_STD = 1.4826
VIDEO_ZOOM, CLIP_ZOOM = 5, 3


def spike_heights(bonus: np.ndarray) -> np.ndarray:
    """How many robust standard deviations each step is above the running median, float [T].

    Median and MAD instead of mean and std: the spikes themselves must not raise the bar they have to clear.
    """
    bonus = np.asarray(bonus, np.float64)
    residual = bonus - median_filter(bonus, size=min(TREND, len(bonus)), mode="reflect")
    spread = MAD_TO_STD * np.median(np.abs(residual - np.median(residual)))
    if spread == 0:  # flat but for the spikes
        spread = residual.std() or 1.0
    return residual / spread


@dataclass(frozen=True)
class Spike:
    """A place where the bonus stands out."""

    step: int
    bonus: float
    height: float  # in robust standard deviations above the running median
    clear: bool  # higher than plain noise would go


def find_spikes(bonus: np.ndarray, most: int = MOST, gap: int = GAP) -> list[Spike]:
    """The strongest spikes, in order of time, at least `gap` steps apart and at most `most`.

    They must rise a robust standard deviation above the running median. Those so high that a curve of plain Gaussian
    noise has one in a hundred times are clear; the others may be noise.
    """
    if len(bonus) < 3:
        return []
    heights = spike_heights(bonus)
    edged = np.pad(heights, 1, constant_values=-np.inf)  # a peak may be the first or the last step
    peaks = find_peaks(edged, height=LEAST, distance=max(1, gap))[0] - 1
    strongest = peaks[np.argsort(-heights[peaks], kind="stable")][:most]
    bar = norm.isf(CHANCE / len(bonus))
    return [
        Spike(int(t), float(bonus[t]), float(heights[t]), bool(heights[t] > bar))
        for t in sorted(strongest)
    ]


def spikes_of_run(
    run: Path,
    *,
    seed: int = 1000,
    steps: int | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Plays an episode and writes what its bonus shows into `run/spikes/`; returns what `spikes.json` says."""
    from ssedb.analysis.plots import plot_spike_curve, plot_spike_frames

    progress.note("playing an episode")
    episode = play_episode(run, seed=seed, max_steps=steps, device=device)
    reading = read_episode(episode, run, device)
    spikes = find_spikes(reading.bonus)
    found = f"{plural(len(episode), 'step')}, {plural(len(spikes), 'spike')}"
    progress.note(f"{found}; writing pictures and videos")
    folder = run / "spikes"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("clip-*.mp4"):
        old.unlink()
    plot_spike_curve(episode, reading, spikes, folder / "curve.png")
    plot_spike_frames(episode, spikes, folder / "frames.png")
    for number, spike in enumerate(spikes, start=1):
        clip = range(spike.step, min(spike.step + GAP + 1, len(episode)))
        write_video(folder / f"clip-{number:02d}.mp4", side_by_side(episode, clip), CLIP_ZOOM)
    write_video(folder / "episode.mp4", with_curve(episode, reading, spikes), 1)
    about = {
        "run": str(run),
        "bonus": reading.bonus_name,
        "trained": episode.trained,
        "seed": seed,
        "length": len(episode),
        "score": float(episode.rewards.sum()),
        "spikes": [asdict(spike) for spike in spikes],
        "curve": [float(b) for b in reading.bonus],
    }
    write_json(folder / "spikes.json", about, indent=None)
    return about


def side_by_side(episode: Episode, steps: range) -> Iterator[np.ndarray]:
    """What the agent saw and, if there is noise, what was there: uint8 [H, W or 2 W, 3]."""
    for t in steps:
        seen, clean = (x[t].numpy() for x in (episode.seen, episode.clean))
        panels = [np.repeat(x[..., None], 3, -1) if x.ndim == 2 else x for x in (seen, clean)]
        yield np.concatenate(panels, 1) if has_clean(episode) else panels[0]


def has_clean(episode: Episode) -> bool:
    """Whether the clean picture shows anything that the agent's does not."""
    same = episode.seen[: len(episode)].shape == episode.clean.shape
    return not (same and bool((episode.seen[: len(episode)] == episode.clean).all()))


def with_curve(episode: Episode, reading: Reading, spikes: list[Spike]) -> Iterator[np.ndarray]:
    """The whole episode with the bonus curve under it: what is past in colour, what is to come in gray."""
    from ssedb.analysis.plots import curve_strips

    width = VIDEO_ZOOM * episode.seen.shape[2] * (2 if has_clean(episode) else 1)
    past, future, columns = curve_strips(reading.bonus, spikes, width)
    for t, picture in enumerate(side_by_side(episode, range(len(episode)))):
        strip = np.concatenate([past[:, : columns[t]], future[:, columns[t] :]], 1)
        strip[:, columns[t] - 1 : columns[t] + 1] = (213, 94, 0)
        yield np.concatenate([picture.repeat(VIDEO_ZOOM, 0).repeat(VIDEO_ZOOM, 1), strip])
