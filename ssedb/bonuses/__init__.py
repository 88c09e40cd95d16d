"""Intrinsic rewards. Each is one file of this folder, found by its name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ssedb.errors import ConfigError
from ssedb.options import bonus_names, canonical_bonus, resolve_options
from ssedb.validate import import_class

if TYPE_CHECKING:
    from ssedb.actions import NumActions
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
    num_actions: NumActions,
    *,
    fidelity: str = "paper",
    preset: str = "paper",
    env: str | None = None,
    noise: str = "none",
    **options: Any,
) -> Bonus:
    """Build a bonus.

    Args:
        name: of the bonus, or package.module:Class.
        obs_shape: of one observation: [C, H, W] for stacks of images, [D] for vectors.
        num_actions: the number of discrete actions, or `ssedb.actions.action_space(...)` of a
            Gymnasium space for any other.
        fidelity: whose side to take where the paper and its released code disagree.
        preset: sizes of the networks.
        env: whose defaults to take.
        noise: whose defaults to take.
        **options: of the bonus, over what the names imply.
    """
    from ssedb.actions import action_space

    name = canonical_bonus(name)
    if len(obs_shape) not in (1, 3):
        raise ConfigError(
            f"obs_shape={tuple(obs_shape)}: must be [C, H, W], such as (4, 84, 84), or [D]"
        )
    action_space(num_actions)  # raises if there are none
    settings = resolve_options(
        name, options, fidelity=fidelity, preset=preset, env=env, noise=noise
    )
    cls: Any = bonus_class(name)  # a subclass takes its options as well
    return cls(obs_shape, num_actions, cls.Options(**settings))
