"""`ssedb doctor`: check a run's folder, or the installation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse


@dataclass(frozen=True)
class Doctor:
    """Show what a run's folder holds, what is damaged and what a resume would do."""

    run: tyro.conf.Positional[Path | None] = None
    """Folder of the run; without it, check the installation."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code: 1 if something is damaged or missing."""
    options = parse(Doctor, args, "doctor")
    from rich.text import Text

    from ssedb.runs.doctor import examine, examine_installation

    findings = examine_installation() if options.run is None else examine(options.run)
    console = terminal.console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        shown = f"{finding.state:<5} {finding.name:<{width}}  {finding.text}"
        line = Text(terminal.literal(shown))
        line.stylize({"good": "green", "note": "yellow", "bad": "bold red"}[finding.state], 0, 5)
        console.print(line, soft_wrap=True)
    return 1 if any(finding.state == "bad" for finding in findings) else 0
