"""Text files of runs and sweeps, read with suspicion: they may be damaged, or made to mislead."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssedb.errors import ConfigError


class Damaged(ValueError):
    """A file of a run that does not hold what it should; the message names the file."""


def require_folder(path: Path, remedy: str) -> None:
    """Raise ConfigError with a remedy unless there is a folder."""
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}; {remedy}")


def read_own(path: Path) -> bytes:
    """Read a file of a run or a sweep; return nothing where there is none.

    Raises:
        Damaged: there is no plain file. A link is not followed to the files of others.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise Damaged(f"{path.name} is no plain file; copy what it stands for to its place")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None


def read_table(path: Path, **types: type | tuple[type, ...]) -> dict[str, Any]:
    """Read the object of a JSON file, or of a TOML file; return {} where there is no file.

    Args:
        path: the file.
        types: what must be the type of a key's value, if the key is there.

    Raises:
        Damaged: the file cannot be read, or holds something else.
    """
    data = read_own(path)
    if not data and not path.exists():
        return {}
    parse: Callable[[str], Any] = tomllib.loads if path.suffix == ".toml" else json.loads
    try:
        value = parse(data.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise Damaged(f"{path.name} cannot be read: {reason}") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path.name} holds no object")
    require_types(path.name, value, types)
    return value


def require_types(name: str, table: dict[str, Any], types: dict[str, Any]) -> None:
    """Raise Damaged if a key of a file's table has a value of another type, or unprintable text."""
    for key, kind in types.items():
        value = table.get(key)
        is_word = not isinstance(value, str) or (value.isprintable() and value.strip())
        if key in table and not (isinstance(value, kind) and is_word):
            raise Damaged(f"{name} has {key}={str(value)[:40]!r}, which no run writes")


def read_json(path: Path, **types: type | tuple[type, ...]) -> dict[str, Any]:
    """Read the object of a JSON file as `read_table` does; return {} of a damaged file, too."""
    try:
        return read_table(path, **types)
    except Damaged:
        return {}
