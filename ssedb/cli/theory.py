"""`ssedb theory`: check the paper's theorems numerically."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ssedb.cli.parsing import parse
from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import make_folder

TheoryPart = Literal["theorem1", "theorem2", "infonce", "regret", "network"]


@dataclass(frozen=True)
class Theory:
    """Check the paper's theory: information gain, UCB and counts, regret, InfoNCE, the network."""

    parts: tuple[TheoryPart, ...] = get_args(TheoryPart)
    """What to measure; by default everything."""
    quick: bool = False
    """Smaller sizes, about a minute in all."""
    seed: int = 0
    """Seed of all random draws."""
    out: Path = Path("runs/theory")
    """Folder for the figures and numbers; what is there is replaced."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Theory, args, "theory")
    if options.seed < 0:
        raise ConfigError(f"seed={options.seed}: must be 0 or more")
    if not options.parts:
        raise ConfigError("parts is empty; name at least one, or leave the flag out")
    require_installed("matplotlib", extra="report")
    make_folder(options.out)
    from ssedb.theory.report import run_theory

    parts = list(dict.fromkeys(options.parts))
    run_theory(parts, options.out, quick=options.quick, seed=options.seed)
    return 0
