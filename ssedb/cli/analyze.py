"""`ssedb analyze`: see what a bonus has learned."""

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
from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import require_writable
from ssedb.runs.folder import require_checkpoint, saved_config
from ssedb.runs.progress import console
from ssedb.terminal import plural

if TYPE_CHECKING:
    from ssedb.analysis.probe import Probe as Measures
    from ssedb.analysis.tsne import Embedding


@dataclass(frozen=True)
class Probe:
    """Measure whether a run's bonus is blind to noise and, on Rooms, fades with visits."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    fresh: bool = False
    """Probe an untrained bonus of the same kind instead."""
    noise: str | None = None
    """Another noise than the run's."""
    transitions: int = 1024
    """How many transitions are looked at."""
    draws: int = 8
    """How many draws of the noise each gets."""
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
    """Draw an episode as the bonus represents it, and measure if consecutive steps lie close."""

    compare: Path | None = None
    """Folder of another run on the same env, to represent the same episode."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    if not args or args[0] in ("-h", "--help"):
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
    config = saved_config(options.run)
    if options.noise is not None:
        config = dataclasses.replace(config, noise=options.noise)
    require_checkpoint(options.run, config)
    require_writable(options.run)
    require_installed("matplotlib", extra="report")
    from ssedb.analysis.probe import probe_run

    result, picture = probe_run(
        options.run,
        fresh=options.fresh,
        noise=options.noise,
        transitions=options.transitions,
        draws=options.draws,
        device=options.device,
    )
    print_probe(result, config.bonus, picture)


def print_probe(result: Measures, bonus: str, picture: Path) -> None:
    """Print what the probe measured, one a line."""
    table = Table(
        "measure", "value", "reads", title=f"{bonus} under {result.noise}", title_justify="left"
    )
    rows = [
        ("share of noise in the bonus", result.bonus_noise_share, "0 blind to it, 1 nothing else"),
        ("correlation with 1/sqrt(N(s,a)+1)", result.count_correlation, "1 rewards like a count"),
        (
            "share of noise in the features",
            result.feature_noise_share,
            "0 blind to it, 1 nothing else",
        ),
        (
            "room named from the features",
            result.room_accuracy,
            "held-out accuracy of a linear probe",
        ),
        (
            "place explained by the features",
            result.place_explained,
            "held-out R2 of row and column",
        ),
        (
            "noise explained by the features",
            result.noise_explained,
            "held-out R2 of the noise in 4x4 fields",
        ),
        (
            "bonus left after 50 repetitions, clean",
            result.fall_clean[-1] / result.fall_clean[0],
            "1 does not fade",
        ),
        ("the same under noise", result.fall_noisy[-1] / result.fall_noisy[0], "1 does not fade"),
    ]
    for name, value, reads in rows:
        table.add_row(name, "-" if value is None else f"{value:.3f}", reads)
    console = terminal.console()
    terminal.print_table(console, table)
    console.print(f"picture  {picture}\nnumbers  {picture.with_suffix('.json')}", soft_wrap=True)


def spikes(args: list[str]) -> None:
    """Run an episode and find its spikes."""
    options = parse(Spikes, args, "analyze spikes")
    _require_episode(options.run, options.steps, options.seed)
    from ssedb.analysis.spikes import spikes_of_run

    found = spikes_of_run(
        options.run,
        seed=options.seed,
        max_steps=options.steps,
        device=options.device,
        progress=console(),
    )
    print_spikes(found)


def print_spikes(found: dict[str, Any]) -> None:
    """Print the spikes of an episode, strongest first, and where the pictures are."""
    length = plural(found["length"], "step")
    title = f"{found['bonus']}: spikes of an episode of {length} (score {found['score']:g})"
    table = Table(
        "number", "step", "bonus", "height (robust std)", "", title=title, title_justify="left"
    )
    numbered = sorted(enumerate(found["spikes"], start=1), key=lambda pair: -pair[1]["height"])
    for number, spike in numbered:
        clear = "clear" if spike["clear"] else "may be noise"
        table.add_row(
            str(number),
            str(spike["step"]),
            f"{spike['bonus']:.4g}",
            f"{spike['height']:.1f}",
            clear,
        )
    console, folder = terminal.console(), Path(found["run"]) / "spikes"
    terminal.print_table(console, table)
    if not numbered:
        console.print("nothing rises above the noise of the curve")
    console.print(
        f"curve    {folder / 'curve.png'}\nframes   {folder / 'frames.png'}", soft_wrap=True
    )
    console.print(
        f"clips    {folder / 'clip-*.mp4'}\nepisode  {folder / 'episode.mp4'}", soft_wrap=True
    )


def tsne(args: list[str]) -> None:
    """Run an episode and draw its representations."""
    options = parse(Tsne, args, "analyze tsne")
    _require_episode(options.run, options.steps, options.seed)
    if options.compare is not None:
        _require_episode(options.compare, options.steps, options.seed)
    from ssedb.analysis.tsne import tsne_of_run

    maps, folder = tsne_of_run(
        options.run,
        options.compare,
        seed=options.seed,
        max_steps=options.steps,
        device=options.device,
        progress=console(),
    )
    print_maps(maps, folder)


def print_maps(maps: list[Embedding], folder: Path) -> None:
    """Print how near consecutive steps lie in each representation."""
    table = Table("representation", "distance of consecutive steps / of random pairs")
    for chart in maps:
        table.add_row(chart.title, "-" if chart.ratio is None else f"{chart.ratio:.3f}")
    console = terminal.console()
    terminal.print_table(console, table)
    console.print("1: time leaves no trace in it; near 0: the episode is a smooth path")
    console.print(
        f"picture  {folder / 'tsne.png'}\nto explore, in a browser  {folder / 'tsne.html'}",
        soft_wrap=True,
    )


def _require_episode(run: Path, steps: int, seed: int) -> None:
    """Raise ConfigError if no episode of the run can be run and drawn."""
    require_checkpoint(run, dataclasses.replace(saved_config(run), seed=seed))
    require_writable(run)
    if steps < 1:
        raise ConfigError(f"steps={steps}: must be 1 or more")
    require_installed("matplotlib", "sklearn", "av", extra="report")


ANALYSES: dict[str, tuple[Callable[[list[str]], None], str]] = {
    "probe": (probe, "is the bonus blind to noise, does it fade with visits?"),
    "spikes": (
        spikes,
        "where along an episode does the bonus spike, and what is on the screen there?",
    ),
    "tsne": (tsne, "does the representation keep together what follows in time?"),
}
