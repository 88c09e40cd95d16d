"""Intrinsic rewards: each is one file of this folder, found by its name."""

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
    """Return the names that `make_bonus` takes."""
    return bonus_names()


def bonus_class(name: str) -> type[Bonus]:
    """Import the class of a bonus.

    Args:
        name: of a file in this folder, or `package.module:Class`.
    """
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
    """Make a bonus.

    Args:
        name: of the bonus, or `package.module:Class`.
        obs_shape: of an observation: [C, H, W] for stacks of images, [D] for vectors.
        num_actions: the number of discrete actions, or for others the space of
            `ssedb.actions.action_space`, which takes a Gymnasium space.
        fidelity: `paper`, `released` or `ours`; see docs/fidelity.md.
        preset: `paper`, `small` or `rooms`: the sizes of the networks.
        env: environment, which some defaults depend on.
        noise: noise, which some defaults depend on.
        **options: settings of the bonus, over what the names above imply.

    Returns:
        A module with `reward`, `loss` and the other methods of `ssedb.bonuses.base.Bonus`.
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
    if missing := sorted(cls.__abstractmethods__):
        raise ConfigError(
            f"bonus={name!r} has no {' and no '.join(missing)}; docs/new-bonus.md shows one"
        )
    try:
        return cls(obs_shape, num_actions, cls.Options(**settings))
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # from within
        needed = "its __init__ must take obs_shape, num_actions and options"
        raise ConfigError(f"bonus={name!r} cannot be made ({error}); {needed}") from None
