"""States of rewards: which one fits which reward, and copies in main memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ssedb.errors import ConfigError

SHORTHAND = ("fidelity", "preset")
"""Settings that matter by the others they stand for alone."""


def as_text(**settings: Any) -> dict[str, str]:
    """Return settings as Python writes them, each on one line."""
    return {name: " ".join(repr(value).split()) for name, value in settings.items()}


def require_made_for(saved: Any, own: dict[str, str]) -> None:
    """Raise ConfigError unless a state was made for what a reward was made for.

    Args:
        saved: settings as Python writes them, by name; of the state.
        own: those of the reward.
    """
    if not isinstance(saved, dict):
        raise ConfigError(
            "no state of an IntrinsicReward: give what its state_dict returned, or begin anew"
        )
    names = [*own, *(name for name in saved if name not in own)]
    differ = [name for name in names if saved.get(name) != own.get(name)]
    if all(name in SHORTHAND for name in differ):
        return
    name = differ[0]
    raise ConfigError(
        f"a state of {name}={saved.get(name)} does not fit this reward of {name}={own.get(name)}; "
        "make the reward as the saved one was made"
    )


@contextmanager
def must_load() -> Iterator[None]:
    """Raise ConfigError for a state whose tensors do not fit."""
    try:
        yield
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error) or repr(error)).strip().splitlines()[-1].strip()
        raise ConfigError(
            f"the state does not fit this reward: {reason}; "
            "make the reward as the saved one was made"
        ) from None


def to_cpu(value: Any) -> Any:
    """Copy the tensors in dicts and lists to main memory."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return type(value)((key, to_cpu(item)) for key, item in value.items())
    if isinstance(value, list):
        return [to_cpu(item) for item in value]
    return value
