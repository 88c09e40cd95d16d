"""All figures of many runs, for print, as PNG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from ssedb.compare.bars import aggregates, by_condition, improvement, profiles
from ssedb.compare.curves import ablation_panels, learning_curves, noise_curves, sample_efficiency
from ssedb.compare.results import Run, tasks_of
from ssedb.compare.style import STYLE


def write_figures(runs: Sequence[Run], folder: Path, keys: Sequence[str], main: str) -> list[Path]:
    """Draw everything that the runs allow, as PNG and PDF; return the PNGs."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []

    def save(name: str, figure: Figure | None) -> None:
        if figure is None:
            return
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=160)
        figure.savefig(path.with_suffix(".pdf"))
        made.append(path)

    with matplotlib.rc_context(STYLE):
        tasks = tasks_of(runs)
        envs, noises = (
            list(dict.fromkeys(env for env, _ in tasks)),
            list(dict.fromkeys(noise for _, noise in tasks)),
        )
        for key in [
            k for k in ("score", "states_share") if any(run.curve(k)[0].size for run in runs)
        ]:
            together = len(tasks) <= 6
            for noise in [None] if together else noises:
                save(
                    f"curves-{key}" + (f"-{noise}" if noise else ""),
                    learning_curves(runs, key, noise=noise),
                )
            for noise in [n for n in noises if n != "none"]:
                save(f"noise-{key}-{noise}", noise_curves(runs, key, noise))
        for key in keys:
            save(f"measure-{key.replace(':', '-')}", by_condition(runs, key))
        for env in envs:
            for noise in noises:
                save(f"ablation-{env}-{noise}".replace("/", "_"), ablation_panels(runs, env, noise))
        save(f"aggregates-{main.replace(':', '-')}", aggregates(runs, main))
        save(f"efficiency-{main.replace(':', '-')}", sample_efficiency(runs, main))
        save(f"profiles-{main.replace(':', '-')}", profiles(runs, main))
        save(f"improvement-{main.replace(':', '-')}", improvement(runs, main))
    return made
