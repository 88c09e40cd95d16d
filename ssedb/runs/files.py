"""Files that are whole or not there, and folders that may be written to."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ssedb.errors import ConfigError, TrainingError, remedy


def write_whole(path: Path, *chunks: bytes | memoryview | str) -> None:
    """Write a file beside its place, flush it to the disk and rename it."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # a link, left there by others, is not written through
        with open(part, "xb") as file:
            for chunk in chunks:
                file.write(chunk.encode() if isinstance(chunk, str) else chunk)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        sync_folder(path.parent)
    except BaseException as error:  # a full disk, or Ctrl-C
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # a full disk names none
        raise


def write_figure(figure: Any, path: Path, dpi: int) -> None:
    """Write a figure of matplotlib, in the format that the path ends with."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=dpi)
    write_whole(path, buffer.getbuffer())


def own_copy(path: Path) -> None:
    """Give a file that has several names, as in a backup by hard links, bytes of its own."""
    if path.is_file() and path.stat().st_nlink > 1:
        write_whole(path, path.read_bytes())


def remove_parts(folder: Path, *names: str) -> None:
    """Remove what a killed process has left of files in a folder; the names may be patterns."""
    for name in names:
        for part in folder.glob(f".{name}.part"):
            with contextlib.suppress(OSError):
                part.unlink()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise TrainingError, with the remedy, if the block cannot write to a path."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"cannot write {path}: {error.strerror or error}; once that is mended, resume the run"
        ) from None


@contextlib.contextmanager
def same_directory() -> Iterator[None]:
    """Return to the working directory when the block ends; relative paths are of that one."""
    try:
        here = os.open(".", os.O_RDONLY)
    except OSError:  # a directory that may be entered and not read
        yield
        return
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def sync_file(path: Path) -> None:
    """Flush a file to the disk, if it is there."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder, without which a power cut may undo a renaming; some file systems refuse."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON, on one line if `indent` is None; a path in it is written as text."""
    write_whole(path, json.dumps(value, indent=indent, default=str), "\n")


def make_folder(path: Path) -> None:
    """Make a folder and those above it; raise ConfigError if that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> ConfigError:
    """Return the error that says why a path cannot be written to."""
    return ConfigError(f"cannot write to {path}: {error.strerror or error}; {remedy(error)}")


def require_writable(path: Path) -> None:
    """Raise ConfigError unless a file can be written to `path`, perhaps in a folder made for it."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if there == path and path.is_file():
        there = path.parent
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(4096))  # a disk may be full
    except OSError as error:
        raise cannot_write(path, error) from None


def refuse_links(folder: Path, *names: str) -> None:
    """Raise ConfigError if a file or folder that will be written to is a link or a pipe.

    A folder from others may hold links; what is written must not follow them. The files need not
    exist.
    """
    for path in (folder / name for name in names):
        if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir())):
            raise ConfigError(
                f"{path} is no plain file or folder, and writing to it may change files elsewhere; "
                "copy what it points to into its place"
            )


def own_folder(parent: Path, name: str) -> Path:
    """Make a folder within a command's own folder; raise ConfigError if it is a link."""
    refuse_links(parent, name)
    (parent / name).mkdir(exist_ok=True)
    return parent / name


def refuse_other_files(out: Path, own: str, ignore: tuple[str, ...] = ()) -> None:
    """Raise ConfigError if a folder holds other files, so that results do not lie among them.

    Args:
        out: the folder; it need not exist.
        own: the file by which a run or a sweep knows its own folder.
        ignore: names that do not count. Names that begin with a dot never do.
    """
    if not out.is_dir() or (out / own).exists():
        return
    names = sorted(path.name for path in out.iterdir() if path.name not in ignore)
    others = [name for name in names if not name.startswith(".")]
    if others:
        raise ConfigError(
            f"{out} holds other files ({others[0]}); choose a new or an empty folder for --out"
        )
