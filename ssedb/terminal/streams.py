"""Standard streams of the command: a closed or full one must not end a run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

UNKNOWN_LETTERS = "backslashreplace"
"""What to do with a letter that the encoding lacks, which must not end a run."""


class _Lossy(io.TextIOWrapper):
    """Stream that drops what it cannot write: its reader or terminal is gone, its disk full."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """Make standard output and error fit for hours of training.

    Standard error shows progress, and a terminal may close: a run goes on without either. Standard
    output in a file or a pipe must take every word. A stream that the caller has closed becomes the
    null device; otherwise the next file that is opened would take its place.
    """
    for _ in range(3):
        if (number := os.open(os.devnull, os.O_RDWR)) > 2:
            os.close(number)
    sys.stderr = _lossy(2, sys.stderr)
    if sys.stdout is None or sys.stdout.isatty():
        sys.stdout = _lossy(1, sys.stdout)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=UNKNOWN_LETTERS)


def _lossy(number: int, like: Any) -> _Lossy:
    """Return a stream on a descriptor, in the encoding of the present stream, if there is one."""
    file = open(number, "wb", closefd=False)  # noqa: SIM115 (as long as the process)
    encoding = getattr(like, "encoding", "utf-8")
    return _Lossy(file, encoding, UNKNOWN_LETTERS, line_buffering=True)


def flush_or_drop() -> None:
    """Write what standard output still holds; drop what it does not take.

    Python would otherwise try again at its exit, and print a complaint.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
