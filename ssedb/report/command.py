"""The command that makes a run again."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ssedb.config import TrainConfig, toml_value

ALWAYS = ("env", "noise", "bonus", "preset", "fidelity", "steps", "seed", "out")
"""Flags that are said even where they are the default; the first five imply the rest."""


def train_command(config: TrainConfig) -> str:
    """Return `ssedb train` with the flags that lead to this configuration."""
    named = {name: getattr(config, name) for name in ALWAYS[:5]}
    usual = TrainConfig(**named)
    words = ["ssedb", "train"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        said = field.name in ALWAYS or value != getattr(usual, field.name)
        if said and field.name != "bonus_options":
            words += _flag(field.name, value)
    for name, value in config.bonus_options.items():
        if value != usual.bonus_options[name]:
            words += _flag(name, value)
    return shlex.join(words)


def full_command(settings: Mapping[str, Any]) -> str:
    """Return `ssedb train` with a flag for every setting of a config.toml; import nothing."""
    flat = {**settings, **settings.get("bonus_options", {})}
    given = {k: v for k, v in flat.items() if k != "bonus_options" and v not in (None, {})}
    return shlex.join(["ssedb", "train", *(word for k in given for word in _flag(k, given[k]))])


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else "--no-" + flag[2:]]
    if isinstance(value, Mapping):
        return [flag, *(f"{key}={toml_value(entry)}" for key, entry in value.items())]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [flag, *map(str, value)]
    return [flag, value.name if isinstance(value, Enum) else str(value)]
