"""Parsing of flags: a dataclass to its values, and a mistake to one line."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from typing import Any, TypeVar, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ssedb.config import toml_value
from ssedb.errors import ConfigError, did_you_mean
from ssedb.validate import MOST

T = TypeVar("T")

OURS: tuple[tuple[str, str], ...] = (
    (r"Missing from [^:]+: \S+ (.*?)\.? \(required\)", r"missing: \1"),
    (r"Missing value for argument '(.*)'\. Expected 1 values", r"\1 needs a value"),
    (r"Missing value for argument '(.*)'\. Expected (\S+) values", r"\1 needs \2 values"),
    (r"Unrecognized options: (.*)", r"no flag takes: \1"),
    (r"Error parsing (\S+): (.*)", r"\1: \2"),
    (
        r"invalid choice ('.*') for argument '-*(.*)'\. Expected one of \((.*)\)",
        r"\2=\1: use one of \3",
    ),
)
"""Complaints of tyro as patterns, and our words for them."""


def setting_names(cls: type[Any]) -> set[str]:
    """Return the settings of a dataclass, those of dataclasses in it included."""
    names: set[str] = set()
    for field in dataclasses.fields(cls):
        inner = next(iter(get_args(field.type)), None)
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            names |= setting_names(inner)
        else:
            names.add(field.name)
    return names


_types = ConstructorRegistry()


@_types.primitive_rule
def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Read 1e6 as a million, a whole number."""
    if info.type is not int:
        return None

    def read(words: list[str]) -> int:
        try:
            number = float(words[0])
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise ValueError(f"{words[0]!r} is no whole number")
        if abs(number) > MOST:
            raise ValueError(f"{words[0]!r} is too large; use at most {MOST:,}")
        return int(number)

    return PrimitiveConstructorSpec(1, "INT", read, lambda x: type(x) is int, lambda x: [str(x)])


@_types.primitive_rule
def _table(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read a table from KEY=VALUE words."""
    if get_origin(info.type) not in (Mapping, dict):
        return None
    return PrimitiveConstructorSpec(
        "*",
        "KEY=VALUE",
        lambda words: dict(map(key_value, words)),
        lambda value: isinstance(value, Mapping),
        lambda table: [f"{key}={toml_value(value)}" for key, value in table.items()],
    )


def key_value(text: str) -> tuple[str, Any]:
    """Read a word such as `steps=1000` or `seed=[0,1]`.

    The value is read as TOML; a bare word is text, except True and False.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text!r}: write KEY=VALUE, such as size=8 or goals=[0,1]")
    try:
        toml = value.lower() if value in ("True", "False") else value
        return key, tomllib.loads(f"x = {toml}")["x"]
    except (ValueError, RecursionError):
        return key, value


def parse(spec: type[T], args: Sequence[str], command: str) -> T:
    """Read the flags of a command.

    Args:
        spec: a dataclass with a field for each flag.
        args: the words after the command.
        command: the command's name, for the help and for errors.

    Raises:
        ConfigError: a flag is wrong; its message is one line where tyro prints a box.
    """
    _refuse_unknown_flags(setting_names(spec), args, command)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(spec, args=list(args), prog=f"ssedb {command}", registry=_types)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ConfigError(
            f"{_first_section(said.getvalue())}; `ssedb {command} --help` explains the flags"
        ) from None


def _refuse_unknown_flags(names: set[str], args: Sequence[str], command: str) -> None:
    """Raise ConfigError for a table given twice, or for a flag that the command does not have."""
    known = [name.replace("_", "-") for name in sorted({"help", *names})]
    flags = [word.partition("=")[0] for word in args if word.startswith("--") and word != "--"]
    for flag in ("--set", "--env-kwargs"):  # of others the last counts, as in any command
        if [word.replace("_", "-") for word in flags].count(flag) > 1:
            raise ConfigError(f"{flag} is given twice; write all its KEY=VALUE after one")
    for flag in flags:
        prefix = "--no-" if flag.startswith("--no-") else "--"
        name = flag.removeprefix(prefix).replace("_", "-")
        if not {name, flag[2:].replace("_", "-")} & set(known) and not name.startswith("tyro-"):
            meant = did_you_mean(name, known, prefix)
            raise ConfigError(
                f"there is no flag {flag}; {meant}`ssedb {command} --help` explains the flags"
            )


def _first_section(box: str) -> str:
    """Return the complaint in tyro's box in our words; the box has no sides without UTF-8."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    sections = itertools.groupby(lines, key=lambda line: set(line) <= set("─-╰╯"))
    said = next((" ".join(section).rstrip(".") for ruled, section in sections if not ruled), "")
    for pattern, words in OURS:
        said = re.sub(pattern, words, said)
    return said
