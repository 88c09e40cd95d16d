"""States of rewards: which one fits which reward, and copies in main memory."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ssedb.errors import ConfigError

REMEDY = "make the reward as the saved one was made"
SHORTHAND = ("fidelity", "preset")
"""Settings that only choose the defaults of others; a state may have been made with other ones."""


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
        f"{REMEDY}"
    )


def copied(value: Any, device: str | None = None) -> Any:
    """Copy the tensors in dicts and lists, to `device` if it is given."""
    if isinstance(value, Tensor):
        return value.to(device or value.device, copy=True)
    if isinstance(value, dict):
        return type(value)((key, copied(item, device)) for key, item in value.items())
    if isinstance(value, list):
        return [copied(item, device) for item in value]
    return value
