"""t-SNE maps of an episode's representations, and the distance of consecutive steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.analysis.episode import (
    BonusTrace,
    Episode,
    record_episode,
    require_comparable,
    trace_bonus,
)
from ssedb.errors import ConfigError
from ssedb.runs.files import own_folder, write_json
from ssedb.runs.progress import Progress, silent
from ssedb.terminal import plural
from ssedb.thin import evenly_spaced

PERPLEXITY = 30.0
COMPONENTS = 50
MOST_POINTS = 1000
"""Steps of a longer episode are drawn at even distances."""


@dataclass(frozen=True)
class Embedding:
    """t-SNE embedding of one representation of an episode."""

    title: str
    steps: np.ndarray  # int [P], which steps of the episode are drawn
    points: np.ndarray  # float [P, 2]
    ratio: float | None  # step_ratio of the representation


def step_ratio(z: np.ndarray) -> float | None:
    """Return the mean distance of consecutive rows over that of all pairs of rows.

    Args:
        z: [T, D].

    Returns:
        About 1 if the order of rows is random, less on a smooth path, None if all rows are alike.
    """
    rows = torch.as_tensor(z).double()
    step, pairs = float(rows.diff(dim=0).norm(dim=1).mean()), mean_pair(rows)
    return step / pairs if len(rows) > 2 and pairs > 0 else None


def mean_pair(rows: Tensor) -> float:
    """Return the mean distance of all pairs of rows [T, D]."""
    if len(rows) < 2:
        return 0.0
    # Near 0 the expanded square loses less.
    centred = rows.double() - rows.double().mean(0)
    distances = torch.cdist(centred, centred).fill_diagonal_(0)
    return float(distances.sum() / (len(rows) * (len(rows) - 1)))


def embed(z: np.ndarray) -> np.ndarray:
    """Embed rows [P, D] as points [P, 2] by t-SNE."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    z = np.asarray(z, np.float32)
    if len(z) < 5 or np.allclose(z, z[0]):  # too few to have neighbours, or all in one place
        return np.zeros((len(z), 2))
    if z.shape[1] > COMPONENTS:
        z = PCA(min(COMPONENTS, len(z)), random_state=0).fit_transform(z)
    perplexity = min(PERPLEXITY, (len(z) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    return tsne.fit_transform(z / z.std()).astype(np.float64)


def embed_pixels(episode: Episode, steps: np.ndarray) -> Embedding:
    """Embed the stacks that the agent saw; random pairs are of the drawn steps, to save time."""
    drawn = episode.stacks(torch.from_numpy(steps)).flatten(1).float()
    lengths = []
    for t in torch.arange(len(episode) - 1).split(256):
        change = episode.stacks(t + 1).float() - episode.stacks(t).float()
        lengths.append(change.flatten(1).norm(dim=1))
    pairs = mean_pair(drawn)
    ratio = float(torch.cat(lengths).mean()) / pairs if pairs > 0 else None
    return Embedding("raw pixels", steps, embed(drawn.numpy()), ratio)


def tsne_of_run(
    run: Path,
    compare: Path | None = None,
    *,
    seed: int = 1000,
    steps: int | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> tuple[Episode, list[BonusTrace], list[Embedding], list[str]]:
    """Run an episode, and write its t-SNE maps into `run/tsne/`.

    Args:
        run: folder of the run whose agent acts.
        compare: another run whose representation is mapped, too.
        seed: of environment, noise and actions.
        steps: ends the episode.
        device: auto, cpu, cuda or cuda:N.
        progress: shows what is done.

    Returns:
        The episode, the bonuses along it, the maps and the names of the bonuses.
    """
    from ssedb.analysis.plots import plot_embeddings

    require_comparable(run, compare)
    episode = record_episode(run, seed=seed, max_steps=steps, device=device, progress=progress)
    traces = [trace_bonus(episode, path, device) for path in (run, compare) if path is not None]
    if traces[0].features is None:
        name = traces[0].bonus_name
        raise ConfigError(
            f"{run}: the bonus {name} has no representation to draw; name another run"
        )
    names = [trace.bonus_name for trace in traces]
    if len(set(names)) < len(names):  # two runs of one bonus
        names = [f"{trace.bonus_name} ({trace.run.name})" for trace in traces]
    progress.note(f"{plural(len(episode), 'step')}; placing them in two dimensions")
    maps = embeddings_of(episode, traces, names)
    folder = own_folder(run, "tsne")
    plot_embeddings(episode, maps, folder / "tsne.png")
    write_json(folder / "tsne.json", _as_json(episode, maps), indent=None)
    return episode, traces, maps, names


def embeddings_of(
    episode: Episode, traces: Sequence[BonusTrace], names: Sequence[str]
) -> list[Embedding]:
    """Embed every representation and the raw pixels, at the same steps."""
    steps = evenly_spaced(len(episode), MOST_POINTS)
    maps = []
    for name, trace in zip(names, traces, strict=True):
        if (z := trace.features) is not None:
            maps.append(Embedding(name, steps, embed(z[steps]), step_ratio(z)))
    return [*maps, embed_pixels(episode, steps)]


def _as_json(episode: Episode, maps: list[Embedding]) -> dict[str, Any]:
    return {
        "run": str(episode.run),
        "trained": episode.trained,
        "seed": episode.seed,
        "length": len(episode),
        "maps": [{"title": m.title, "step_ratio": m.ratio, **_points(m)} for m in maps],
    }


def _points(chart: Embedding) -> dict[str, Any]:
    return {"steps": chart.steps.tolist(), "points": chart.points.tolist()}
