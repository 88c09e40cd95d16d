"""Checkpoints, saved and loaded here alone. A checkpoint is whole or it is not there.

A file holds four things: a line with the format's number, a JSON line (steps, the run's settings,
..., the length and the SHA-256 of the data), the SHA-256 of both lines, and the data: tensors and
plain data as torch writes them. So every bit is covered. Loading checks the sums and runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from fnmatch import fnmatch
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, TypeVar

from ssedb import errors
from ssedb.errors import ConfigError, one_line
from ssedb.runs.files import write_whole, writing

FORMAT = 2
"""Format 1 had no sum of its header."""
KEEP = 2
LONGEST_HEADER = 2**20
T = TypeVar("T")


class NewerFormat(ValueError):
    """A checkpoint that a later version of ssedb has written."""


def save(folder: Path, state: dict[str, Any], about: dict[str, Any]) -> Path:
    """Write `folder/step-<steps>.ckpt`; then delete all but it and the whole one before it.

    Args:
        folder: where checkpoints are.
        state: tensors and plain data.
        about: the header, which must hold `steps`.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    header = {**about, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    lines = f"ssedb-checkpoint {FORMAT}\n{json.dumps(header)}\n".encode()
    path = folder / f"step-{about['steps']:012d}.ckpt"
    with writing(path):
        write_whole(path, lines, hashlib.sha256(lines).hexdigest(), "\n", data)
    _delete_all_but(path, folder)
    return path


def _delete_all_but(newest: Path, folder: Path) -> None:
    """Keep the newest checkpoint and the whole one before it.

    A later one that is damaged would be tried first at each resume, so it goes, too.
    """
    whole = []
    for path in list_checkpoints(folder):
        try:
            read_header(path)
        except (NewerFormat, OSError):  # one that cannot be read now may be whole
            continue
        except ValueError:
            path.unlink(missing_ok=True)
        else:
            whole.append(path)
    before = [path for path in whole if path.name < newest.name]
    for old in before[: 1 - KEEP]:
        old.unlink(missing_ok=True)


def about_latest(folder: Path) -> dict[str, Any] | None:
    """Return the newest whole header (steps, env, ...); None where there is no checkpoint."""
    return _newest(folder, read_header)


def newest_whole(folder: Path) -> dict[str, Any]:
    """Return the header of the newest checkpoint that is whole to the last bit, or {}."""
    found = _newest(folder, read_whole)
    return {} if found is None else found[0]


def load_latest(
    folder: Path,
    device: Any = "cpu",
    tell: Callable[[str], None] = lambda text: None,
    damaged: list[Path] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Load the newest whole checkpoint.

    Args:
        folder: where checkpoints are.
        device: where to put the tensors.
        tell: takes a line for each newer checkpoint that is damaged.
        damaged: takes the paths of those.

    Returns:
        The state and its header; None where there is no checkpoint.

    Raises:
        ConfigError: there are checkpoints, and all are damaged.
    """
    import torch  # noqa: F401 (takes seconds, in which a run may replace what was listed)

    return _newest(folder, lambda path: _load(path, device), tell, damaged)


def must_fit(run: Path) -> AbstractContextManager[None]:
    """Raise ConfigError if, in the block, a checkpoint turns out not to fit its run's settings."""
    mismatch = f"the checkpoint in {run} does not fit its config.toml"
    return errors.must_fit(mismatch, "put the file back")


def _newest(
    folder: Path,
    read: Callable[[Path], T],
    tell: Callable[[str], None] = lambda text: None,
    damaged: list[Path] | None = None,
) -> T | None:
    complaints: list[str] = []
    gone: set[Path] = set()
    paths = list_checkpoints(folder)
    while paths:
        path = paths.pop()
        try:
            found = read(path)
        except FileNotFoundError:  # a run that goes on has replaced it
            gone.add(path)
            paths = [other for other in list_checkpoints(folder) if other not in gone]
            complaints.clear()
            continue
        except (OSError, ValueError) as error:
            complaints.append(f"{path.name} {why_not(error)}")
            if damaged is not None and not isinstance(error, NewerFormat | OSError):
                damaged.append(path)
            continue
        for complaint in complaints:
            tell(f"{complaint}; using the one before it")
        return found
    if complaints:
        raise ConfigError(
            f"no checkpoint in {folder} can be read: {'; '.join(complaints)}; start a new run"
        )
    return None


def why_not(error: Exception) -> str:
    """Say why a checkpoint cannot be used."""
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})"
    return str(error) if isinstance(error, NewerFormat) else f"is damaged ({error})"


def _load(path: Path, device: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    header, data = read_whole(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of other pickles than torch's
            state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except UnpicklingError:  # torch would advise to load it all the same, and run its code
        raise ValueError("its data is not of tensors and plain data alone") from None
    except Exception as error:  # whatever a file with the right sums may hold
        raise ValueError(f"its data cannot be loaded: {one_line(error)[:200]}") from None
    if not isinstance(state, dict):
        raise ValueError("its data is no state of a run")
    return state, header


def read_whole(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and data; raise ValueError if a single bit of the file is wrong."""
    with open(path, "rb") as file:
        header = _header(file)
        data = file.read()
    if hashlib.sha256(data).hexdigest() != header.pop("sha256", None):
        raise ValueError("its checksum does not match")
    return header, data


def read_header(path: Path) -> dict[str, Any]:
    """Return the header; raise ValueError if a bit of it or the length of the file is wrong."""
    with open(path, "rb") as file:
        return _header(file)


def _header(file: BinaryIO) -> dict[str, Any]:
    first = file.readline(LONGEST_HEADER)
    found = re.fullmatch(rb"ssedb-checkpoint (\d{1,9})\n", first)
    if found is None:
        raise ValueError("not a checkpoint of ssedb")
    if int(found[1]) > FORMAT:
        raise NewerFormat(
            f"is of format {int(found[1])}, and this ssedb reads up to {FORMAT}; update ssedb"
        )
    line = file.readline(LONGEST_HEADER)
    if int(found[1]) > 1 and (
        file.readline(LONGEST_HEADER) != f"{hashlib.sha256(first + line).hexdigest()}\n".encode()
    ):
        raise ValueError("the checksum of its header does not match")
    header = json.loads(line)
    if not isinstance(header, dict) or not isinstance(header.get("steps"), int):
        raise ValueError("its header is not that of a checkpoint")
    length = os.fstat(file.fileno()).st_size - file.tell()
    if header.pop("bytes", length) != length:
        raise ValueError("its length is not what the header says")
    return header


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest last.

    Raises:
        ConfigError: the folder cannot be read. What is in it must not count as lost.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {folder}: {error.strerror}; make it readable") from None
    paths = (folder / name for name in sorted(names) if fnmatch(name, "step-*.ckpt"))
    return [path for path in paths if path.is_file()]  # a pipe would be waited for
