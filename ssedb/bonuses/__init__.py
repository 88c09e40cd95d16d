"""Intrinsic rewards. Each is one file of this folder, found by its name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ssedb.errors import ConfigError
from ssedb.options import bonus_names, canonical_bonus, resolve_options
from ssedb.validate import import_class

if TYPE_CHECKING:
    from ssedb.bonuses.base import Bonus


def list_bonuses() -> list[str]:
    """The names that `make_bonus` takes."""
    return bonus_names()


def bonus_class(name: str) -> type[Bonus]:
    """The class in the file of that name, or the class that `package.module:Class` names."""
    if ":" not in name:
        return import_module(f"ssedb.bonuses.{name.replace('-', '_')}").BONUS
    from ssedb.bonuses.base import Bonus

    return import_class("bonus", name, Bonus)  # type: ignore[type-abstract]


def make_bonus(
    name: str,
    obs_shape: tuple[int, ...],
    num_actions: int,
    *,
    fidelity: str = "paper",
    preset: str = "paper",
    env: str | None = None,
    noise: str = "none",
    **options: Any,
) -> Bonus:
    """Builds a bonus for stacks of `obs_shape` [C, H, W]; `options` override what the names imply."""
    name = canonical_bonus(name)
    if len(obs_shape) != 3:
        raise ConfigError(f"obs_shape={tuple(obs_shape)}: must be [C, H, W], such as (4, 84, 84)")
    if num_actions < 1:
        raise ConfigError(f"num_actions={num_actions}: must be 1 or more")
    settings = resolve_options(
        name, options, fidelity=fidelity, preset=preset, env=env, noise=noise
    )
    cls: Any = bonus_class(name)  # a subclass takes its options as well
    return cls(obs_shape, num_actions, cls.Options(**settings))
