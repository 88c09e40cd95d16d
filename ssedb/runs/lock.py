"""Locks: one process writes to a folder at a time, one thread of a process trains."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ssedb.errors import ConfigError, FolderInUse
from ssedb.runs.files import cannot_write, make_folder, refuse_links


class FolderLock:
    """Lock on a folder. The kernel releases it when the process ends, however it ends."""

    def __init__(self, path: Path, file: Any, made: bool) -> None:
        self.path, self._file, self._made = path.absolute(), file, made
        _held.add(self)

    @property
    def holds(self) -> bool:
        """Whether the folder at this path is still the one that was locked."""
        return not self.closed and _is_at(self.path / ".lock", self._file)

    def forget(self) -> None:
        """Close a forked process's copy of the lock, which stays locked."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the lock has been released."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Release the folder; remove it if it was made for the lock and holds nothing else."""
        if self._made and self.holds:
            with suppress(OSError):
                if os.listdir(self.path) == [".lock"]:
                    (self.path / ".lock").unlink()
                    self.path.rmdir()
        self._file.close()


def lock_folder(path: Path, create: bool) -> FolderLock:
    """Lock a folder for this process.

    Args:
        path: the folder.
        create: whether to make the folder if it is not there.

    Raises:
        FolderInUse: another process has it.
    """
    made = create and not path.exists()
    if create:
        make_folder(path)
    refuse_links(path, ".lock")
    try:
        file = open(path / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 (held open)
    except FileNotFoundError:
        if create:  # its owner has removed it meanwhile
            return lock_folder(path, create)
        raise ConfigError(f"{path} is gone; name the folder of a run") from None
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise FolderInUse(
            f"{path} is in use by process {owner}; wait for it to end, or choose another --out"
        ) from None
    except OSError as error:
        file.close()
        raise cannot_write(path / ".lock", error) from None
    if not _is_at(path / ".lock", file):  # its owner removed it before it was locked here
        file.close()
        return lock_folder(path, create)
    lock = FolderLock(path, file, made)
    try:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except OSError as error:
        with suppress(OSError):
            lock.close()
        raise cannot_write(path, error) from None
    return lock


def _is_at(path: Path, file: Any) -> bool:
    """Tell whether a path still names an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return False


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in _held:
        lock.forget()


# A process that outlives the one it was forked from must not keep the folder locked.
os.register_at_fork(after_in_child=_forget_all)


_training = threading.RLock()


@contextmanager
def only_run_of_this_process() -> Iterator[None]:
    """Raise ConfigError if another thread of this process trains or evaluates.

    All threads draw from torch's one generator, so the numbers of both would be wrong. A nested run
    on the same thread is allowed: it restores the generator when it ends.
    """
    if not _training.acquire(blocking=False):
        raise ConfigError(
            "another thread of this process trains a run, and both would draw from torch's one "
            "generator; train each run in a process of its own, as `ssedb sweep` does"
        )
    try:
        yield
    finally:
        _training.release()
