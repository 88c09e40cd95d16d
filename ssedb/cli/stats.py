"""`ssedb stats`: compare many runs in tables and figures."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.errors import ConfigError
from ssedb.runs.files import require_writable


@dataclass(frozen=True)
class Stats:
    """Compare many runs: tables with 95% intervals, aggregates, which method is better, figures."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that hold runs, at any depth."""
    out: Path | None = None
    """Folder for the tables and figures; by default stats/ in the first folder."""
    measures: tuple[str, ...] = ()
    """Measures to compare (states_share score area:score i_nce ...); the first ranks methods."""
    figures: bool = True
    """Draw the figures too (needs `pip install 'ssedb[report]'`)."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Stats, args, "stats")
    if not options.runs:
        raise ConfigError("no folder is named; use `ssedb stats runs/quick`")
    from ssedb.compare.results import load_runs
    from ssedb.compare.tables import make_tables
    from ssedb.compare.write import write_stats

    require_writable(options.out or options.runs[0])
    out = options.out or options.runs[0] / "stats"
    runs = load_runs(*options.runs)
    tables = make_tables(runs, options.measures)
    console = terminal.console(width=None if sys.stdout.isatty() else 160)
    for table in tables:
        table.show(console)
    title = ", ".join(map(str, options.runs))
    how: dict[str, Any] = dict(measures=options.measures, figures=options.figures)
    made, missed = write_stats(runs, tables, out, title, **how)
    print(terminal.literal(f"written to {out}: {', '.join(made)}"))
    for line in missed:
        print(terminal.wrapped(line))
    return 0
