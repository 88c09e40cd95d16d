"""Standard streams of the command: a closed or full one must not end a run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

UNKNOWN_LETTERS = "backslashreplace"
"""Handler of letters that the encoding lacks, which must not end a run."""


class _Lossy(io.TextIOWrapper):
    """Stream on a descriptor that drops what it cannot write because of some errors."""

    def __init__(self, number: int, like: Any, errors: type[OSError], line_by_line: bool) -> None:
        """Replace a stream.

        Args:
            number: the descriptor.
            like: the stream to replace, whose encoding stays; None if there is none.
            errors: those that are dropped.
            line_by_line: whether to write after each line.
        """
        file = open(number, "wb", closefd=False)  # noqa: SIM115 (as long as the process)
        encoding = getattr(like, "encoding", "utf-8")
        super().__init__(file, encoding, UNKNOWN_LETTERS, line_buffering=line_by_line)
        self._dropped = errors

    def write(self, text: str, /) -> int:
        with contextlib.suppress(self._dropped):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(self._dropped):
            super().flush()


def prepare_streams() -> None:
    """Make standard output and error fit for hours of training.

    Standard error shows progress, and a terminal may close: a run goes on without either. The
    reader of a pipe may have seen enough. Standard output in a file must take every word. A stream
    that the caller has closed becomes the null device, here and in processes that this one starts;
    otherwise the next file that is opened would take its place.
    """
    for _ in range(3):
        number = os.open(os.devnull, os.O_RDWR)
        if number > 2:
            os.close(number)
        else:
            os.set_inheritable(number, True)
    sys.stderr = _Lossy(2, sys.stderr, OSError, line_by_line=True)
    if sys.stdout is None or sys.stdout.isatty():
        sys.stdout = _Lossy(1, sys.stdout, OSError, line_by_line=True)
    else:
        sys.stdout = _Lossy(1, sys.stdout, BrokenPipeError, line_by_line=False)


def flush_or_drop() -> None:
    """Write what standard output still holds; drop what it does not take.

    Python would otherwise try again at its exit, and print a complaint.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
