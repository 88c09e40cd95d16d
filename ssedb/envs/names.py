"""Names of environments: Atari games in any common spelling, Rooms, Gymnasium ids.

Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ssedb.errors import ConfigError, did_you_mean
from ssedb.validate import import_outside

GAMES = (
    "alien",
    "asteroids",
    "bank_heist",
    "boxing",
    "breakout",
    "centipede",
    "crazy_climber",
    "gopher",
    "gravitar",
    "kangaroo",
    "kung_fu_master",
    "ms_pacman",
    "seaquest",
    "solaris",
    "tennis",
    "time_pilot",
    "up_n_down",
    "wizard_of_wor",
)
"""The 18 games of the suite."""

POOLS = 4
"""Pools of emulators, which step independently."""


@cache
def atari_games() -> tuple[str, ...]:
    """Return the snake_case names of all ROMs inside ale-py."""
    from ale_py import roms

    return tuple(sorted(roms.get_all_rom_ids()))


def atari_game(name: str) -> str | None:
    """Return the ROM of a name in any spelling, or None.

    Args:
        name: such as alien, MsPacman, ALE/MsPacman-v5 or MsPacmanNoFrameskip-v4.
    """
    bare = re.sub(r"^ALE/", "", name)
    bare = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", bare)
    letters = _letters(bare)
    return next((game for game in atari_games() if _letters(game) == letters), None)


def bare_id(name: str) -> str:
    """Return a Gymnasium id without the module that `module:Id` names."""
    return name.rpartition(":")[2]


def gymnasium_id(name: str) -> str | None:
    """Return the id by which any process can make an environment; None if Gymnasium has none.

    A module in the name is imported, which registers its environments. A bare id gets the module of
    its entry point, so that a process that has not imported that module can make it, too.

    Args:
        name: `Id` or `module:Id`.

    Returns:
        `Id` or `module:Id`.
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
    """Tell whether an id is ale-py's own, for which its faster vector environment is used."""
    import gymnasium

    return "ale_py" in str(getattr(gymnasium.registry.get(bare_id(name)), "entry_point", ""))


def dropped_sticky_actions(name: str, noise: str) -> str | None:
    """Return a note if an Atari id implies sticky actions (v0, v5) and the noise is not sticky."""
    game = canonical_env(name)
    if game not in atari_games() or noise == "sticky" or not re.search(r"-v[05]$", name):
        return None
    return (
        f"{name} has sticky actions of its own, which ssedb leaves out, as the paper does for "
        f"{game}; use --noise sticky for sticky actions"
    )


def require_env_kwargs(env: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that do not go to gymnasium.make."""
    if not kwargs:
        return
    name, (key, value) = canonical_env(env), next(iter(kwargs.items()))
    if rooms_world(name) or name in atari_games():
        raise ConfigError(
            f"env_kwargs: {key}={value!r} is for gymnasium.make, and {name} is not made by it; "
            "leave it out"
        )
    if "max_episode_steps" in kwargs:
        raise ConfigError(
            f"env_kwargs: max_episode_steps={kwargs['max_episode_steps']!r} is a setting of its "
            "own; use that one"
        )


def env_label(env: str, kwargs: Mapping[str, Any]) -> str:
    """Return an environment's name for tables and figures, with its keyword arguments."""
    return env + (
        f" ({', '.join(f'{key}={value}' for key, value in kwargs.items())})" if kwargs else ""
    )


def rooms_world(name: str) -> tuple[str, int] | None:
    """Return (size, layout seed) of `rooms`, `rooms-small`, `rooms@3`, ...; else None."""
    match = re.fullmatch(r"rooms(?:-(tiny|small|medium|large))?(?:@(\d+))?", name.lower())
    return (match[1] or "medium", int(match[2] or 0)) if match else None


def canonical_env(name: str) -> str:
    """Return the one name of an environment; raise ConfigError with suggestions if unknown."""
    if world := rooms_world(name):
        size, seed = world
        return "rooms" + (f"-{size}" if size != "medium" else "") + (f"@{seed}" if seed else "")
    known = gymnasium_id(name)
    if known is not None and not is_ale_id(known):
        return known
    if game := atari_game(bare_id(name)):
        return game
    rooms = ("rooms", "rooms-tiny", "rooms-small", "rooms-large")
    hint = did_you_mean(name.lower(), [*atari_games(), *rooms])
    if other := _other_version(name):
        hint = f"did you mean {other}? "
    elif not hint or re.search(r"-v\d+$", name):
        hint += "does a package have to be imported? use module:Id; "
    raise ConfigError(
        f"unknown environment {name!r}; {hint}`ssedb list envs` shows Atari and Rooms"
    )


def _other_version(name: str) -> str | None:
    """Return the newest id that Gymnasium has for another version of a name, if it has one."""
    import gymnasium

    bare = re.sub(r"-v\d+$", "", name)
    ids = [known for known in gymnasium.registry if re.sub(r"-v\d+$", "", known) == bare]
    return max(ids, key=lambda known: gymnasium.registry[known].version or 0, default=None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def pools_of(env: str, num_envs: int) -> int:
    """Return the number of pools that environments are split into.

    While one pool waits for its actions, the others step. The reset of an Atari game delays its
    pool by as long as ten steps take.
    """
    return (
        next(pools for pools in (POOLS, 2, 1) if num_envs % pools == 0)
        if env in atari_games()
        else 1
    )
