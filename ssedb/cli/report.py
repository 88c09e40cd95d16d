"""`ssedb report`: make a page of runs for a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from ssedb.cli.parsing import parse
from ssedb.errors import ConfigError, require_installed
from ssedb.reading import require_folder
from ssedb.terminal import console


@dataclass(frozen=True)
class Report:
    """Make a page of runs that opens offline: statistics, curves, episodes to explore, maps."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that hold runs, at any depth."""
    out: Path = Path("report")
    """Folder for the page; an older report there is replaced."""
    single_file: bool = False
    """Put everything into one HTML file: OUT/index.html, or OUT itself if it ends in .html."""
    episodes: int = 12
    """Most episodes in the explorer, one for each env, noise and method; 0 for none."""
    title: str = ""
    """Title of the page; by default the names of the folders."""
    device: str = "auto"
    """Where to run the episodes: auto, cpu, cuda or cuda:N."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Report, args, "report")
    if not options.runs:
        raise ConfigError("no folder of runs is named; use `ssedb report runs/`")
    if options.episodes < 0:
        raise ConfigError(f"episodes={options.episodes}: must be 0 or more")
    for folder in options.runs:
        require_folder(folder, "name one that holds runs")
    require_installed("matplotlib", "sklearn", "av", extra="report")
    from ssedb.report.make import make_report
    from ssedb.runs import progress

    index = make_report(**vars(options), progress=progress.console())
    console().print(f"open in a browser  {index}", soft_wrap=True)
    return 0
