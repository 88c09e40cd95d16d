"""Spikes of the bonus along an episode, with the frames at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import median_filter
from scipy.signal import find_peaks
from scipy.stats import norm

from ssedb.analysis.episode import BonusTrace, Episode, record_episode, trace_bonus
from ssedb.runs.evaluation import write_video
from ssedb.runs.files import own_folder, write_json
from ssedb.runs.progress import Progress, silent
from ssedb.terminal import plural

MOST = 16
GAP = 15
"""Fewest steps between two spikes, and frames that a clip shows after each."""
TREND = 61
"""Steps of the running median that a spike must rise above."""
LEAST, CHANCE = 1.0, 0.01
MAD_TO_STD = 1.4826
VIDEO_ZOOM, CLIP_ZOOM = 5, 3


def spike_heights(bonus: np.ndarray) -> np.ndarray:
    """Return the height of each step [T] above the running median, in robust stds.

    Median and MAD instead of mean and std: spikes must not raise their own threshold.
    """
    bonus = np.asarray(bonus, np.float64)
    residual = bonus - median_filter(bonus, size=min(TREND, len(bonus)), mode="reflect")
    spread = MAD_TO_STD * np.median(np.abs(residual - np.median(residual)))
    if spread == 0:  # flat but for the spikes
        spread = residual.std() or 1.0
    return residual / spread


@dataclass(frozen=True)
class Spike:
    """Step at which the bonus peaks."""

    step: int
    bonus: float
    height: float  # in robust standard deviations above the running median
    clear: bool  # higher than plain noise would go


def find_spikes(bonus: np.ndarray, most: int = MOST) -> list[Spike]:
    """Find the highest spikes of a bonus [T], at most `most`, in order of time.

    A spike rises at least one robust standard deviation above the running median. A clear spike is
    so high that Gaussian noise of T steps reaches it with probability 0.01.
    """
    if len(bonus) < 3:
        return []
    heights = spike_heights(bonus)
    edged = np.pad(heights, 1, constant_values=-np.inf)  # a peak may be the first or the last step
    peaks = find_peaks(edged, height=LEAST, distance=GAP)[0] - 1
    strongest = peaks[np.argsort(-heights[peaks], kind="stable")][:most]
    threshold = norm.isf(CHANCE / len(bonus))
    return [
        Spike(int(t), float(bonus[t]), float(heights[t]), bool(heights[t] > threshold))
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
    """Run an episode, and write its spikes, figures and videos into `run/spikes/`.

    Returns:
        The contents of `spikes.json`.
    """
    from ssedb.analysis.plots import plot_spike_curve, plot_spike_frames

    episode = record_episode(run, seed=seed, max_steps=steps, device=device, progress=progress)
    trace = trace_bonus(episode, run, device)
    spikes = find_spikes(trace.bonus)
    found = f"{plural(len(episode), 'step')}, {plural(len(spikes), 'spike')}"
    progress.note(f"{found}; writing pictures and videos")
    folder = own_folder(run, "spikes")
    plot_spike_curve(episode, trace, spikes, folder / "curve.png")
    plot_spike_frames(episode, spikes, folder / "frames.png")
    for number, spike in enumerate(spikes, start=1):
        clip = range(spike.step, min(spike.step + GAP + 1, len(episode)))
        write_video(folder / f"clip-{number:02d}.mp4", side_by_side(episode, clip), CLIP_ZOOM)
    write_video(folder / "episode.mp4", with_curve(episode, trace, spikes), 1)
    # Last: on a full disk an older analysis keeps its clips.
    for old in sorted(folder.glob("clip-*.mp4"))[len(spikes) :]:
        old.unlink()
    about = {
        "run": str(run),
        "bonus": trace.bonus_name,
        "trained": episode.trained,
        "seed": seed,
        "length": len(episode),
        "score": float(episode.rewards.sum()),
        "spikes": [asdict(spike) for spike in spikes],
        "curve": [float(b) for b in trace.bonus],
    }
    write_json(folder / "spikes.json", about, indent=None)
    return about


def side_by_side(episode: Episode, steps: range) -> Iterator[np.ndarray]:
    """Yield noisy frames, beside the clean ones if they differ: uint8 [H, W or 2 W, 3]."""
    for t in steps:
        seen, clean = (x[t].numpy() for x in (episode.seen, episode.clean))
        panels = [np.repeat(x[..., None], 3, -1) if x.ndim == 2 else x for x in (seen, clean)]
        yield np.concatenate(panels, 1) if has_clean(episode) else panels[0]


def has_clean(episode: Episode) -> bool:
    """Tell whether any clean frame differs from what the agent saw."""
    same = episode.seen[: len(episode)].shape == episode.clean.shape
    return not (same and bool((episode.seen[: len(episode)] == episode.clean).all()))


def with_curve(episode: Episode, trace: BonusTrace, spikes: list[Spike]) -> Iterator[np.ndarray]:
    """Yield all frames above the bonus curve, which is gray where it is still to come."""
    from ssedb.analysis.plots import curve_strips

    width = VIDEO_ZOOM * episode.seen.shape[2] * (2 if has_clean(episode) else 1)
    past, future, columns = curve_strips(trace.bonus, spikes, width)
    for t, picture in enumerate(side_by_side(episode, range(len(episode)))):
        strip = np.concatenate([past[:, : columns[t]], future[:, columns[t] :]], 1)
        strip[:, columns[t] - 1 : columns[t] + 1] = (213, 94, 0)
        yield np.concatenate([picture.repeat(VIDEO_ZOOM, 0).repeat(VIDEO_ZOOM, 1), strip])
