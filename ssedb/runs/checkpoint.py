"""Checkpoints, saved and loaded here alone. A checkpoint is whole or it is not there.

A file is a magic line, a JSON line (steps, environment, ..., and the SHA-256 of the rest) and
tensors and plain data as torch writes them. Loading checks the sum and runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ssedb.errors import ConfigError, TrainingError
from ssedb.runs.files import write_whole

MAGIC = b"ssedb-checkpoint 1\n"
KEEP = 2
T = TypeVar("T")


def save(folder: Path, state: dict[str, Any], about: dict[str, Any]) -> Path:
    """Write `folder/step-<steps>.ckpt` and delete all but the newest two.

    Args:
        folder: where checkpoints are; it is made if need be.
        state: tensors and plain data.
        about: the header, which must hold `steps`.
    """
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    header = {**about, "sha256": hashlib.sha256(payload).hexdigest()}
    path = folder / f"step-{about['steps']:012d}.ckpt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, MAGIC, json.dumps(header), "\n", payload)
    except OSError as error:
        raise TrainingError(
            f"cannot write {path}: {error.strerror}; once that is mended, resume the run"
        ) from None
    for old in _checkpoints(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def about_latest(folder: Path) -> dict[str, Any] | None:
    """Return the newest readable header (steps, env, ...); None where there is no checkpoint."""
    return _newest(folder, _read_header)


def load_latest(
    folder: Path, device: Any = "cpu", tell: Callable[[str], None] = lambda text: None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Load the newest whole checkpoint.

    Args:
        folder: where checkpoints are.
        device: where to put the tensors.
        tell: takes a line for each newer checkpoint that is damaged.

    Returns:
        The state and its header; None where there is no checkpoint.

    Raises:
        ConfigError: there are checkpoints, and all are damaged.
    """
    return _newest(folder, lambda path: _load(path, device), tell)


@contextmanager
def must_fit(run: Path) -> Iterator[None]:
    """Raise ConfigError if, in the block, a checkpoint turns out not to fit its run's settings."""
    try:
        yield
    except ConfigError:
        raise
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(
            f"the checkpoint in {run} does not fit its config.toml: {reason}; put the file back"
        ) from None


def _newest(
    folder: Path, read: Callable[[Path], T], tell: Callable[[str], None] = lambda text: None
) -> T | None:
    complaints: list[str] = []
    for path in reversed(_checkpoints(folder)):
        try:
            found = read(path)
        except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
            complaints.append(f"{path.name} is damaged ({error})")
            continue
        for complaint in complaints:
            tell(f"{complaint}; using the one before it")
        return found
    if complaints:
        raise ConfigError(
            f"no checkpoint in {folder} can be read: {'; '.join(complaints)}; start a new run"
        )
    return None


def _load(path: Path, device: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    with open(path, "rb") as file:
        header = _header(file)
        payload = file.read()
    if hashlib.sha256(payload).hexdigest() != header.pop("sha256", None):
        raise ValueError("its checksum does not match")
    return torch.load(io.BytesIO(payload), map_location=device, weights_only=True), header


def _read_header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return _header(file)


def _header(file: Any) -> dict[str, Any]:
    if file.read(len(MAGIC)) != MAGIC:
        raise ValueError("not a checkpoint of ssedb")
    header = json.loads(file.readline())
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.ckpt"))
