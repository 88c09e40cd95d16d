"""All figures of many runs, for print, as PNG and PDF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ssedb.compare.aggregate import by_noise
from ssedb.compare.bars import aggregates, by_condition, improvement, profiles
from ssedb.compare.curves import ablation_panels, learning_curves, noise_curves, sample_efficiency
from ssedb.compare.results import Run, tasks_of
from ssedb.compare.style import STYLE
from ssedb.compare.tables import aggregated
from ssedb.runs.files import own_folder, write_figure

Figures = Iterator[tuple[str, Figure | None]]


def write_figures(runs: Sequence[Run], folder: Path, keys: Sequence[str], main: str) -> list[Path]:
    """Draw everything that the runs allow, as PNG and PDF; return the PNGs."""
    own_folder(folder.parent, folder.name)
    with matplotlib.rc_context(STYLE):
        made = []
        for name, figure in _draw(runs, keys, main):
            if figure is not None:
                path = folder / f"{name.replace(':', '-').replace('/', '_')}.png"
                for suffix in (".png", ".pdf"):
                    write_figure(figure, path.with_suffix(suffix), dpi=160)
                made.append(path)
    return made


def _draw(runs: Sequence[Run], keys: Sequence[str], main: str) -> Figures:
    """Draw figures, each with its name; None where the runs do not allow one."""
    tasks = tasks_of(runs)
    envs = list(dict.fromkeys(env for env, _ in tasks))
    noises = list(dict.fromkeys(noise for _, noise in tasks))
    for key in ("score", "states_share"):
        values = np.concatenate([run.curve(key)[1] for run in runs])
        if not (np.nan_to_num(values).any() or (key in keys and values.size)):
            continue
        if len(tasks) <= 6:
            yield f"curves-{key}", learning_curves(runs, key)
        else:
            for noise in noises:
                yield f"curves-{key}-{noise}", learning_curves(runs, key, noise=noise)
        for noise in noises:
            if noise != "none":
                yield f"noise-{key}-{noise}", noise_curves(runs, key, noise)
    for key in keys:
        yield f"measure-{key}", by_condition(runs, key)
    for env in envs:
        for noise in noises:
            yield f"ablation-{env}-{noise}", ablation_panels(runs, env, noise)
    for noise, part in by_noise(runs).items():
        end = f"-{noise}" if noise else ""
        for key in aggregated(keys, main):
            yield f"aggregates-{key}{end}", aggregates(part, key, noise)
        yield f"efficiency-{main}{end}", sample_efficiency(part, main, noise)
        yield f"profiles-{main}{end}", profiles(part, main, noise)
        yield f"improvement-{main}{end}", improvement(part, main, noise)
