"""Output of `ssedb theory`: a table of the claims, figures, and theory.json."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ssedb import terminal
from ssedb.runs.files import make_folder, write_json
from ssedb.terminal.bar import Bar
from ssedb.theory.claims import Claim, Section, Tell, infonce, theorem1, theorem2
from ssedb.theory.figures import FIGURES
from ssedb.theory.regret import regret
from ssedb.theory.trust import network

PARTS: dict[str, Callable[[bool, int, Tell], Section]] = {
    "theorem1": theorem1,
    "theorem2": theorem2,
    "infonce": infonce,
    "regret": regret,
    "network": network,
}


def run_theory(parts: Sequence[str], out: Path, *, quick: bool = False, seed: int = 0) -> None:
    """Measure the claims, print them, and write `theory.json` and figures.

    Args:
        parts: names of sections, of PARTS.
        out: folder for the files.
        quick: whether to measure less.
        seed: of all that is drawn.
    """
    make_folder(out)
    began, claims, record = time.monotonic(), {}, {}
    for name, (found, data, seconds) in _measure(parts, quick, seed).items():
        claims[name] = found
        plain = [dataclasses.asdict(claim) for claim in found]
        record[name] = {"seconds": round(seconds, 1), "claims": plain, "data": data}
        FIGURES[name](data, out / f"{name}.png")
    write_json(out / "theory.json", {"quick": quick, "seed": seed, "parts": record})
    print_claims(claims)
    terminal.print_places(
        {
            "figures": ", ".join(str(out / f"{name}.png") for name in parts),
            "numbers": out / "theory.json",
            "took": f"{time.monotonic() - began:.0f} s; docs/theory.md explains each line",
        }
    )


def _measure(
    parts: Sequence[str], quick: bool, seed: int
) -> dict[str, tuple[list[Claim], dict[str, Any], float]]:
    found = {}
    with Bar() as bar:
        for name in parts:
            began = time.monotonic()

            def tell(share: float, name: str = name) -> None:
                bar.show([f"{name} {share:.0%}"], share, 1.0, last=share == 1)

            claims, data = PARTS[name](quick, seed, tell)
            found[name] = (claims, data, time.monotonic() - began)
    return found


def print_claims(claims: dict[str, list[Claim]]) -> None:
    """Print a table of the claims of all sections."""
    table = Table("claim", "setting", "measured", "verdict", show_lines=True)
    for section in claims.values():
        for claim in section:
            colour = {"holds": "green", "fails": "red", "unclear": "yellow"}[claim.verdict]
            table.add_row(claim.claim, claim.setting, claim.measured, Text(claim.verdict, colour))
    terminal.print_table(table)
