"""Names of environments: any common spelling of an Atari game, Rooms, or a Gymnasium id. Imports no torch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ssedb.errors import ConfigError
from ssedb.validate import import_outside

GAMES = (
    "alien", "asteroids", "bank_heist", "boxing", "breakout", "centipede", "crazy_climber", "gopher", "gravitar",
    "kangaroo", "kung_fu_master", "ms_pacman", "seaquest", "solaris", "tennis", "time_pilot", "up_n_down", "wizard_of_wor",
)  # fmt: skip
"""The 18 games of the suite."""

POOLS = 4
"""Pools of emulators, which step independently."""


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


def bare_id(name: str) -> str:
    """Return a Gymnasium id without the module that `module:Id` names."""
    return name.rpartition(":")[2]


def gymnasium_id(name: str) -> str | None:
    """Return how any process can make the environment, `module:Id` or `Id`; None if Gymnasium does not know it.

    A module that is named is imported, which registers its environments. For a bare id that some module has registered here,
    the module of its entry point is named, so that a process that has not imported that module can make it too.
    """
    import gymnasium

    module, _, bare = name.rpartition(":")
    if module:
        import_outside(f"env={name!r}", module)
        if bare not in gymnasium.registry:
            raise ConfigError(
                f"env={name!r}: {module} is imported and registers no {bare!r}; "
                "name the module that calls gymnasium.register for it, as module:Id"
            )
        return name
    if bare not in gymnasium.registry:
        return None
    entry = gymnasium.registry[bare].entry_point
    home = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None)
    return (
        name
        if home in (None, "__main__", "functools") or home.startswith("gymnasium.")
        else f"{home}:{bare}"
    )


def is_ale_id(name: str) -> bool:
    """Tell whether Gymnasium knows the id as one of ale-py's own, which we step through its faster vector environment."""
    import gymnasium

    return "ale_py" in str(getattr(gymnasium.registry.get(bare_id(name)), "entry_point", ""))


def dropped_sticky_actions(name: str, noise: str) -> str | None:
    """Return a line for who names an Atari id that has sticky actions (v0, v5) and does not ask for them; else None."""
    game = canonical_env(name)
    if game not in atari_games() or noise == "sticky" or not re.search(r"-v[05]$", name):
        return None
    return (
        f"{name} has sticky actions of its own, and is played as the paper plays {game}, without them; "
        "use --noise sticky for sticky actions"
    )


def check_env_kwargs(env: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that gymnasium.make would not be given, or that have a setting of their own."""
    if not kwargs:
        return
    name, (key, value) = canonical_env(env), next(iter(kwargs.items()))
    if rooms_world(name) or name in atari_games():
        raise ConfigError(
            f"env_kwargs: {key}={value!r} is for gymnasium.make, and {name} is not made by it; leave it out"
        )
    if "max_episode_steps" in kwargs:
        raise ConfigError(
            f"env_kwargs: max_episode_steps={kwargs['max_episode_steps']!r} is a setting of its own; use that one"
        )


def env_label(env: str, kwargs: Mapping[str, Any]) -> str:
    """Return an environment's name for tables and figures, with the arguments it is made with."""
    return env + (
        f" ({', '.join(f'{key}={value}' for key, value in kwargs.items())})" if kwargs else ""
    )


def rooms_world(name: str) -> tuple[str, int] | None:
    """Return (size, layout seed) of `rooms`, `rooms-small`, `rooms@3`, ..., or None for another name."""
    match = re.fullmatch(r"rooms(?:-(tiny|small|medium|large))?(?:@(\d+))?", name.lower())
    return (match[1] or "medium", int(match[2] or 0)) if match else None


def canonical_env(name: str) -> str:
    """The one name under which an environment is known here; an unknown one is an error with suggestions."""
    if world := rooms_world(name):
        size, seed = world
        return "rooms" + (f"-{size}" if size != "medium" else "") + (f"@{seed}" if seed else "")
    known = gymnasium_id(name)
    if known is not None and not is_ale_id(known):
        return known
    if game := atari_game(bare_id(name)):
        return game
    near = difflib.get_close_matches(
        name.lower(),
        [*atari_games(), "rooms", "rooms-tiny", "rooms-small", "rooms-large"],
        n=2,
        cutoff=0.6,
    )
    hints = [f"did you mean {' or '.join(near)}? "] if near else []
    if not near or re.search(r"-v\d+$", name):
        hints.append("does a package have to be imported? use module:Id; ")
    raise ConfigError(
        f"unknown environment {name!r}; {''.join(hints)}`ssedb list envs` shows them all"
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def pools_of(env: str, num_envs: int) -> int:
    """How many pools so many environments of a run step in: while one waits for its actions, the others step.

    An Atari game that begins anew holds up its pool for as long as ten steps take; the other pools go on.
    """
    return (
        next(pools for pools in (POOLS, 2, 1) if num_envs % pools == 0)
        if env in atari_games()
        else 1
    )
