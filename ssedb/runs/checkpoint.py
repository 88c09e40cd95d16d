"""The only module that saves and loads. A checkpoint is whole or it is not there.

A file is a magic line, a JSON line (what it is of, and the SHA-256 of the rest) and tensors and plain data as torch
writes them. It is written beside its place, flushed to the disk and renamed; loading checks the sum and runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ssedb.errors import ConfigError, TrainingError

MAGIC = b"ssedb-checkpoint 1\n"
KEEP = 2
T = TypeVar("T")


def save(folder: Path, state: dict[str, Any], about: dict[str, Any]) -> Path:
    """Writes `folder/step-<steps>.ckpt` and lets go of all but the newest two. `about` must hold `steps`."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    header = {**about, "sha256": hashlib.sha256(payload).hexdigest()}
    path = folder / f"step-{about['steps']:012d}.ckpt"
    part = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            file.write(MAGIC + json.dumps(header).encode() + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        _sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise TrainingError(
            f"cannot write {path}: {error.strerror}; once that is mended, resume the run"
        ) from None
    for old in _checkpoints(folder)[:-KEEP]:
        old.unlink(missing_ok=True)
    return path


def about_latest(folder: Path) -> dict[str, Any] | None:
    """What the newest readable header says (steps, env, ...), without loading anything; None where there is none."""
    found = _newest(folder, _read_header)
    return None if found is None else found[0]


def load_latest(
    folder: Path, device: Any = "cpu"
) -> tuple[dict[str, Any], dict[str, Any], list[str]] | None:
    """(state, about, complaints) of the newest whole checkpoint; damaged ones are passed over and named."""
    found = _newest(folder, lambda path: _load(path, device))
    return None if found is None else (*found[0], found[1])


def _newest(folder: Path, read: Callable[[Path], T]) -> tuple[T, list[str]] | None:
    """Read the newest checkpoint that can be read; return it and complaints about newer ones. All damaged is an error."""
    complaints: list[str] = []
    for path in reversed(_checkpoints(folder)):
        try:
            return read(path), complaints
        except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
            complaints.append(f"{path.name} is damaged ({error})")
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
