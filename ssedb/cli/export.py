"""`ssedb export`: write a run's weights as safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from ssedb.cli.parsing import parse
from ssedb.terminal import literal


@dataclass(frozen=True)
class Export:
    """Write the policy's and the bonus's weights as safetensors, for other programs."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Path | None = None
    """The file; by default weights.safetensors in the run's folder."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Export, args, "export")
    from ssedb.runs.export import export

    path = export(options.run, options.out)
    print(literal(f"{path}: {path.stat().st_size / 2**20:.1f} MiB"))
    return 0
