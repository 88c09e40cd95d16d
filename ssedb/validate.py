"""Checks that turn a wrong value into one line with the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ssedb.errors import ConfigError

MOST = 10**11
"""No whole number may exceed it: more steps than any run makes, and what torch and the emulators can still count."""


def check_types(config: Any) -> None:
    """Every field must hold what its annotation says: a listed word, a whole number, a finite number, a tuple of such.
    1e6 is a whole number too, and is made one."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is not ClassVar:
            value = getattr(config, name)
            if hint is int and isinstance(value, float) and value.is_integer():
                object.__setattr__(config, name, int(value))
            _check_type(name, getattr(config, name), hint)


def _check_type(name: str, value: Any, hint: Any) -> None:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        require(value in inner, name, repr(value), f"use one of {', '.join(map(str, inner))}")
    elif origin in (Union, UnionType):  # a number, or a word that stands for one
        number, words = inner
        if isinstance(value, str):
            require(
                value in get_args(words),
                name,
                repr(value),
                f"use {' or '.join(get_args(words))} or a number",
            )
        else:
            _check_type(name, value, number)
    elif hint is bool:
        require(isinstance(value, bool), name, repr(value), "must be true or false")
    elif hint is int:
        require(
            isinstance(value, int) and not isinstance(value, bool),
            name,
            repr(value),
            "must be a whole number",
        )
        require(value <= MOST, name, value, f"must be at most {MOST:,}")
    elif hint is float:
        number = (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
        require(number, name, repr(value), "must be a finite number")
    elif hint is str:
        require(isinstance(value, str), name, repr(value), "must be text")
    elif origin is tuple:
        endless = inner[-1] is Ellipsis
        right = (
            isinstance(value, tuple) and len(value) > 0 and (endless or len(value) == len(inner))
        )
        require(
            right, name, repr(value), "must be a list" + ("" if endless else f" of {len(inner)}")
        )
        for element in value:
            _check_type(name, element, inner[0])
            require(
                not isinstance(element, int) or element > 0, name, repr(value), "must be above 0"
            )


def plain_table(name: str, value: Any) -> dict[str, Any]:
    """Return a copy of a table that TOML can hold, tuples as lists; raise ConfigError for anything else."""

    def plain(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return plain_table(key, value)
        if isinstance(value, (list, tuple)):
            return [plain(key, element) for element in value]
        allowed = isinstance(value, (bool, int, str)) or (
            isinstance(value, float) and math.isfinite(value)
        )
        require(
            allowed,
            key,
            repr(value),
            "must be text, a finite number, true or false, a list or a table",
        )
        return value

    require(isinstance(value, Mapping), name, repr(value), "must be a table")
    for key in value:
        right = isinstance(key, str) and key.isidentifier() and key.isascii()
        require(right, name, repr(key), "a name in it must be made of letters, digits and _")
    return {key: plain(f"{name}.{key}", element) for key, element in value.items()}


def require(condition: bool, name: str, value: object, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"{name}={value}: {remedy}")
