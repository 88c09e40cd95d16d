"""Episodes for the page: frames as picture sheets, and what each bonus makes of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssedb.analysis.episode import BonusTrace, Episode, record_episode, trace_bonus
from ssedb.analysis.spikes import Spike, find_spikes, has_clean
from ssedb.analysis.tsne import Embedding, embeddings_of
from ssedb.compare.results import Run, conditions, method_looks
from ssedb.envs.names import env_label
from ssedb.errors import ConfigError
from ssedb.report.page import Page
from ssedb.runs.progress import Progress
from ssedb.terminal import plural
from ssedb.thin import compact, evenly_spaced

MOST_FRAMES = 1000
COLUMNS = 25
QUALITY = 70
MOST_TRACES = 4
"""Bonuses that look at one episode."""


def add_episodes(
    page: Page, runs: Sequence[Run], most: int, device: str, progress: Progress
) -> list[str]:
    """Run an episode with one agent of each condition; return what went wrong."""
    complaints: list[str] = []
    chosen: list[tuple[Run, list[Run]]] = []
    by_task: dict[tuple[str, str], list[Run]] = {}
    for (env, noise, _), several in conditions(runs).items():
        first = next((run for run in several if any(run.path.glob("checkpoints/*.ckpt"))), None)
        if first is not None:
            by_task.setdefault((env, noise), []).append(first)
    # Where there is noise to see first.
    for several in sorted(by_task.values(), key=lambda runs: runs[0].noise == "none"):
        for run in several:
            traced = [run, *(other for other in several if other is not run)]
            chosen.append((run, traced[:MOST_TRACES]))
    for number, (run, traced) in enumerate(chosen[:most]):
        which = f"episode {number + 1} of {min(len(chosen), most)}"
        progress.note(f"{which}: {run.method} on {run.env}, noise {run.noise}")
        try:
            episode = record_episode(run.path, device=device)
        except (ConfigError, RuntimeError, KeyError) as error:
            complaints.append(f"{run.path}: no episode, {error}")
            continue
        traces, names = [], []
        for other in traced:
            try:
                trace = trace_bonus(episode, other.path, device)
                if not np.isfinite(trace.bonus).all():
                    raise ConfigError(f"the bonus of {other.method} is not finite")
                traces.append(trace)
                names.append(other.method)
            except (ConfigError, RuntimeError, KeyError) as error:
                complaints.append(f"{other.path}: {error}")
        if traces:
            entry = describe(page, episode, traces, embeddings_of(episode, traces, names), names)
            entry["run"] = next(i for i, r in enumerate(runs) if r is run)
            entry["agent"] = run.method  # its own trace may have failed
            page.data["episodes"].append(entry)
    if len(chosen) > most:
        left = len(chosen) - most
        others = f"{plural(left, 'agent')} {'has' if left == 1 else 'have'}"
        remedy = f"`--episodes {len(chosen)}` shows all"
        complaints.append(f"{others} no episode on the page; {remedy}")
    return complaints


def describe(
    page: Page,
    episode: Episode,
    traces: Sequence[BonusTrace],
    maps: Sequence[Embedding],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return an episode as the page wants it; add its frames to the page as picture sheets.

    Args:
        page: the page.
        episode: the episode, of T steps.
        traces: bonuses of the episode, [T] each.
        maps: t-SNE embeddings of the episode.
        names: method of each trace; the page names the agent by the first unless told otherwise.

    Returns:
        The entry of the page's list of episodes, ready for JSON.
    """
    spikes = [find_spikes(trace.bonus) for trace in traces]
    steps = kept_steps(len(episode), {spike.step for several in spikes for spike in several})
    number = len(page.data["episodes"])
    seen = page.add_picture(f"frames/{number}-seen.webp", sheet(episode.seen.numpy()[steps]))
    clean = None
    if has_clean(episode):
        clean = page.add_picture(f"frames/{number}-clean.webp", sheet(episode.clean.numpy()[steps]))
    config, rewards = episode.config, episode.rewards.numpy()
    size = list(episode.seen.shape[1:])
    where = {chart.title: i for i, chart in enumerate(maps)}
    return {
        "env": env_label(config.env, config.env_kwargs),
        "noise": config.noise_label,
        "agent": names[0],
        "trained": episode.trained,
        "seed": episode.seed,
        "length": len(episode),
        "score": float(rewards.sum()),
        "rewards": [[int(t), float(rewards[t])] for t in np.flatnonzero(rewards)],
        "frames": {"steps": steps, "columns": COLUMNS, "size": size, "seen": seen, "clean": clean},
        "traces": [
            {
                "name": name,
                "bonus": compact(trace.bonus),
                "spikes": _spikes(found),
                "map": where.get(name),
            }
            for name, trace, found in zip(names, traces, spikes, strict=True)
        ],
        "maps": [_map(chart) for chart in maps],
    }


def _spikes(found: Sequence[Spike]) -> list[dict[str, Any]]:
    return [{"step": s.step, "clear": s.clear, "height": round(s.height, 1)} for s in found]


def _map(chart: Embedding) -> dict[str, Any]:
    """Return points as thousandths of the picture's side."""
    low, high = chart.points.min(0), chart.points.max(0)
    side = max(float((high - low).max()), 1e-9)
    points = np.round(500 + 1000 * (chart.points - (low + high) / 2) / side).astype(int)
    return {
        "title": chart.title,
        "ratio": None if chart.ratio is None else round(chart.ratio, 4),
        "steps": chart.steps.tolist(),
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
    }


def kept_steps(length: int, needed: set[int], most: int = MOST_FRAMES) -> list[int]:
    """Choose the frames of an episode to keep: at even distances, and all that are needed."""
    return sorted({*evenly_spaced(length, most).tolist(), *needed})


def sheet(frames: np.ndarray) -> bytes:
    """Encode frames [F, H, W] or [F, H, W, 3] as one WebP picture, exact if that is smaller."""
    from PIL import Image

    count, height, width = frames.shape[:3]
    rows = -(-count // COLUMNS)
    whole = np.zeros((rows * COLUMNS, *frames.shape[1:]), np.uint8)
    whole[:count] = frames
    tiles = whole.reshape(rows, COLUMNS, height, width, -1).swapaxes(1, 2)
    grid = tiles.reshape(rows * height, COLUMNS * width, -1)
    picture = Image.fromarray(grid.squeeze(-1) if grid.shape[-1] == 1 else grid)
    found = []
    for settings in ({"lossless": True}, {"quality": QUALITY}):
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", method=4, **settings)
        found.append(buffer.getvalue())
    return min(found, key=len)


def write_episode_page(
    episode: Episode,
    traces: Sequence[BonusTrace],
    maps: Sequence[Embedding],
    names: Sequence[str],
    path: Path,
) -> None:
    """Write one episode as a page in one file."""
    title = f"{names[0]} on {episode.config.env}, noise {episode.config.noise_label}"
    methods = list(dict.fromkeys(names))
    looks = method_looks(methods)
    page = Page({"title": title, "methods": methods, "looks": looks, "episodes": []})
    page.data["episodes"].append(describe(page, episode, traces, maps, names))
    page.write_file(path)
