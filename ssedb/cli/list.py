"""`ssedb list`: list environments, noises or bonuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.envs.names import GAMES, atari_games
from ssedb.noises import about_noises
from ssedb.options import bonus_names
from ssedb.terminal import wrapped

PAPER_PARAMETERS = {"db": "5.15M", "icm": "4.86M", "disagreement": "26.47M", "cb": "none"}
ABOUT_SIZES = (
    "parameters at paper size with 4 actions; trained: those that the bonus's own loss moves; "
    "paper: what it lists (ICM 2.21M + 2.65M; CB nothing beyond the actor-critic)"
)


@dataclass(frozen=True)
class List:
    """List the environments, noises or bonuses that a run can have."""

    what: tyro.conf.Positional[Literal["envs", "noises", "bonuses"]]
    """What to list."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    what = parse(List, args, "list").what
    if what == "envs":
        print_envs()
    elif what == "noises":
        terminal.print_pairs(about_noises())
    else:
        print_bonuses(bonus_names())
    return 0


def print_envs() -> None:
    """Print the environments that a run can be trained on."""
    rest = [game for game in atari_games() if game not in GAMES]
    print(f"the paper's games ({len(GAMES)}):\n{wrapped(' '.join(GAMES), '  ', '  ')}")
    print(f"every other Atari game ({len(rest)}):\n{wrapped(' '.join(rest), '  ', '  ')}")
    print("a world whose true state is known:\n  rooms rooms-tiny rooms-small rooms-large")
    print("  rooms@7 is another layout of rooms")
    any_id = "any Gymnasium id that observes images or vectors"
    print(wrapped(f"and {any_id}; module:Id imports its module"))


def print_bonuses(names: list[str]) -> None:
    """Print every bonus with its size, and the paper's size where the paper lists it."""
    from rich import box
    from rich.table import Table

    from ssedb.bonuses import bonus_class, make_bonus

    table = Table("bonus", box=box.SIMPLE)
    for heading in ("parameters", "trained", "paper"):
        table.add_column(heading, justify="right")
    table.add_column("what it does")
    for name in names:
        parameters = list(make_bonus(name, (4, 84, 84), 4).parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        about = (bonus_class(name).__doc__ or "").strip().splitlines()[0].removesuffix(".")
        size = f"{sum(p.numel() for p in parameters):,}"
        table.add_row(name, size, f"{trained:,}", PAPER_PARAMETERS.get(name, "-"), about)
    terminal.print_table(table)
    terminal.console().print(ABOUT_SIZES)
