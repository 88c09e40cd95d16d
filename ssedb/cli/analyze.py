"""`ssedb analyze`: measure what a bonus has learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.table import Table

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.config import under_noise
from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import require_writable
from ssedb.runs.folder import require_checkpoint, saved_config
from ssedb.runs.progress import console
from ssedb.terminal import plural

if TYPE_CHECKING:
    from ssedb.analysis.probe import Probe as Measures
    from ssedb.analysis.tsne import Embedding

READS = {
    "bonus_noise_share": "0 blind to it, 1 nothing else",
    "count_correlation": "1 rewards like a count",
    "feature_noise_share": "0 blind to it, 1 nothing else",
    "room_accuracy": "held-out accuracy of a linear probe",
    "place_explained": "held-out R2 of row and column",
    "noise_explained": "held-out R2 of noise in 4x4 fields",
}
"""Explanation of each measure of a probe."""


@dataclass(frozen=True)
class Probe:
    """Measure whether a run's bonus is blind to noise and, on Rooms, fades with visits."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    fresh: bool = False
    """Probe an untrained bonus of the same kind instead."""
    noise: str | None = None
    """Noise to probe with instead of the run's."""
    transitions: int = 1024
    """Transitions to probe."""
    draws: int = 8
    """Draws of the noise over each transition."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Spikes:
    """Run an episode and find where its bonus spikes: curve, frames, clips and a video."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    seed: int = 1000
    """Seed of the episode."""
    steps: int = 4500
    """Stop the episode after so many steps."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class Tsne(Spikes):
    """Map an episode in the bonus's features; measure whether consecutive steps lie close."""

    compare: Path | None = None
    """Folder of another run on the same env, to map the same episode beside."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    if not args:
        raise ConfigError(
            f"missing: the analysis ({' or '.join(ANALYSES)}) and the folder of a run; "
            "`ssedb analyze --help` explains them"
        )
    if args[0] in ("-h", "--help"):
        print("usage: ssedb analyze ANALYSIS RUN [flags]\n")
        terminal.print_pairs({name: meaning for name, (_, meaning) in ANALYSES.items()}, "  ")
        return 0
    if args[0] not in ANALYSES:
        raise ConfigError(f"unknown analysis {args[0]!r}; use {' or '.join(ANALYSES)}")
    ANALYSES[args[0]][0](args[1:])
    return 0


def probe(args: list[str]) -> None:
    """Measure a run's bonus under noise."""
    options = parse(Probe, args, "analyze probe")
    config = under_noise(saved_config(options.run), options.noise)
    require_checkpoint(options.run, config)
    require_writable(options.run)
    require_installed("matplotlib", extra="report")
    from ssedb.analysis.probe import probe_run

    result, picture = probe_run(**vars(options))
    print_probe(result, config.bonus, picture)


def print_probe(result: Measures, bonus: str, picture: Path) -> None:
    """Print what the probe measured, one a line."""
    from ssedb.compare.measures import label

    clean, noisy = (fall[-1] / fall[0] for fall in (result.fall_clean, result.fall_noisy))
    rows = [(label(key), getattr(result, key), reads) for key, reads in READS.items()]
    rows.append(("bonus left after 50 repetitions, clean", clean, "1 does not fade"))
    rows.append(("the same under noise", noisy, "1 does not fade"))
    table = Table("measure", "value", "reads", title=f"{bonus} under {result.noise}")
    for name, value, reads in rows:
        table.add_row(name, "-" if value is None else f"{value:.3f}", reads)
    terminal.print_table(table)
    terminal.print_places({"picture": picture, "numbers": picture.with_suffix(".json")})


def spikes(args: list[str]) -> None:
    """Run an episode and find its spikes."""
    options = parse(Spikes, args, "analyze spikes")
    _require_episode(options, options.run)
    from ssedb.analysis.spikes import spikes_of_run

    print_spikes(spikes_of_run(**vars(options), progress=console()))


def print_spikes(found: dict[str, Any]) -> None:
    """Print the spikes of an episode, strongest first, and where the pictures are."""
    length = plural(found["length"], "step")
    title = f"{found['bonus']}: spikes of an episode of {length} (score {found['score']:g})"
    table = Table("number", "step", "bonus", "height (robust std)", "", title=title)
    numbered = sorted(enumerate(found["spikes"], start=1), key=lambda pair: -pair[1]["height"])
    for number, spike in numbered:
        bonus, height = f"{spike['bonus']:.4g}", f"{spike['height']:.1f}"
        clear = "clear" if spike["clear"] else "may be noise"
        table.add_row(str(number), str(spike["step"]), bonus, height, clear)
    terminal.print_table(table)
    if not numbered:
        print("nothing rises above the noise of the curve")
    files = {"curve": "curve.png", "frames": "frames.png"}
    if numbered:
        files["clips"] = "clip-*.mp4"
    files["episode"] = "episode.mp4"
    folder = Path(found["run"]) / "spikes"
    terminal.print_places({name: folder / file for name, file in files.items()})


def tsne(args: list[str]) -> None:
    """Run an episode and draw its representations."""
    options = parse(Tsne, args, "analyze tsne")
    _require_episode(options, options.run)
    if options.compare is not None:
        _require_episode(options, options.compare)
    from ssedb.analysis.tsne import tsne_of_run
    from ssedb.report.explorer import write_episode_page

    episode, traces, maps, names = tsne_of_run(**vars(options), progress=console())
    folder = options.run / "tsne"
    write_episode_page(episode, traces, maps, names, folder / "tsne.html")
    print_maps(maps, folder)


def print_maps(maps: list[Embedding], folder: Path) -> None:
    """Print how near consecutive steps lie in each representation."""
    table = Table("representation", "distance of consecutive steps / of random pairs")
    for chart in maps:
        table.add_row(chart.title, "-" if chart.ratio is None else f"{chart.ratio:.3f}")
    terminal.print_table(table)
    print("1: time leaves no trace in it; near 0: the episode is a smooth path")
    page = {"to explore, in a browser": folder / "tsne.html"}
    terminal.print_places({"picture": folder / "tsne.png", **page})


def _require_episode(options: Spikes, run: Path) -> None:
    """Raise ConfigError if no episode of the run can be run and drawn."""
    require_checkpoint(run, dataclasses.replace(saved_config(run), seed=options.seed))
    require_writable(run)
    if options.steps < 1:
        raise ConfigError(f"steps={options.steps}: must be 1 or more")
    require_installed("matplotlib", "sklearn", "av", extra="report")


ANALYSES: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "probe": (probe, "is the bonus blind to noise, does it fade with visits?"),
    "spikes": (spikes, "where along an episode does the bonus spike, and what is on the screen?"),
    "tsne": (tsne, "does the representation keep together what follows in time?"),
}
