"""Names of environments and noises: any common spelling of an Atari game, Rooms, or a Gymnasium id. Imports no torch."""

from __future__ import annotations

import difflib
import re
from functools import cache

from ssedb.errors import ConfigError

GAMES = (
    "alien", "asteroids", "bank_heist", "boxing", "breakout", "centipede", "crazy_climber", "gopher", "gravitar",
    "kangaroo", "kung_fu_master", "ms_pacman", "seaquest", "solaris", "tennis", "time_pilot", "up_n_down", "wizard_of_wor",
)  # fmt: skip
"""The 18 games of the suite."""

POOLS = 4
"""Pools of emulators, which step independently."""

NOISES = {
    "none": "the observations as they are",
    "random-box": "3 to 12 boxes of Gaussian noise on an 8x10 grid, drawn afresh every step",
    "pixel": "Gaussian noise on the pixels",
    "sticky": "the previous action is repeated with probability 0.25",
    "noisy-tv": "a corner shows noise that changes whenever the agent takes the last action",
    "clouds": "bright blobs drift over the picture in Brownian motion",
    "flicker": "a backdrop of large fields grows brighter and darker at every step",
}
"""What may disturb an agent."""


@cache
def atari_games() -> tuple[str, ...]:
    """Every ROM inside ale-py, by its snake_case name."""
    from ale_py import roms

    return tuple(sorted(roms.get_all_rom_ids()))


def atari_game(name: str) -> str | None:
    """The ROM that a spelling means (alien, MsPacman, ALE/MsPacman-v5, MsPacmanNoFrameskip-v4), or None."""
    bare = re.sub(r"^ALE/", "", name)
    bare = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", bare)
    letters = _letters(bare)
    return next((game for game in atari_games() if _letters(game) == letters), None)


def is_gymnasium_id(name: str) -> bool:
    import gymnasium

    return ":" in name or name in gymnasium.registry


def is_ale_id(name: str) -> bool:
    """Whether Gymnasium knows the id as one of ale-py's own, which we play through its faster vector environment."""
    import gymnasium

    return "ale_py" in str(getattr(gymnasium.registry.get(name), "entry_point", ""))


def rooms_world(name: str) -> tuple[str, int] | None:
    """(size, layout seed) of `rooms`, `rooms-small`, `rooms-large`, `rooms@3`, ..., or None for another name."""
    match = re.fullmatch(r"rooms(?:-(small|medium|large))?(?:@(\d+))?", name.lower())
    return (match[1] or "medium", int(match[2] or 0)) if match else None


def canonical_env(name: str) -> str:
    """The one name under which an environment is known here; an unknown one is an error with suggestions."""
    if world := rooms_world(name):
        size, seed = world
        return "rooms" + (f"-{size}" if size != "medium" else "") + (f"@{seed}" if seed else "")
    if is_gymnasium_id(name) and not is_ale_id(name):
        return name
    if game := atari_game(name):
        return game
    near = difflib.get_close_matches(name.lower(), atari_games(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ConfigError(f"unknown environment {name!r}; {hint}`ssedb list envs` shows them all")


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def pools_of(env: str, num_envs: int) -> int:
    """How many pools so many environments of a run step in: while one waits for its actions, the others step.

    An Atari game that begins anew holds up its pool for as long as ten steps take; the other pools go on.
    """
    return next(pools for pools in (POOLS, 2, 1) if num_envs % pools == 0) if env in atari_games() else 1
