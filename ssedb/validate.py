"""Checks that turn a wrong value into one line with the value and the remedy."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

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
    elif hint is bool:
        require(isinstance(value, bool), name, repr(value), "must be true or false")
    elif hint is int:
        require(isinstance(value, int) and not isinstance(value, bool), name, repr(value), "must be a whole number")
        require(value <= MOST, name, value, f"must be at most {MOST:,}")
    elif hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        require(number, name, repr(value), "must be a finite number")
    elif hint is str:
        require(isinstance(value, str), name, repr(value), "must be text")
    elif origin is tuple:
        endless = inner[-1] is Ellipsis
        right = isinstance(value, tuple) and len(value) > 0 and (endless or len(value) == len(inner))
        require(right, name, repr(value), "must be a list" + ("" if endless else f" of {len(inner)}"))
        for element in value:
            _check_type(name, element, inner[0])
            require(not isinstance(element, int) or element > 0, name, repr(value), "must be above 0")


def require(condition: bool, name: str, value: object, remedy: str) -> None:
    if not condition:
        raise ConfigError(f"{name}={value}: {remedy}")
