"""Progress on standard error: a bar in a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from ssedb import terminal

PLAIN_LINE_EVERY = 10.0  # seconds
CLEAR_LINE = "\r\x1b[2K"
"""Command that empties the terminal's line, which holds a bar; the bar is soon drawn below."""


class Bar:
    """One line that says how far something is, with a bar before it where the output is a terminal.

    Args:
        label: columns before the bar for a word that says what is being done; 0 for none.
    """

    def __init__(self, label: int = 0) -> None:
        self._said = float("-inf")
        self._live: Any = None
        if not sys.stderr.isatty():
            return
        from rich.progress import BarColumn, Progress, TextColumn

        console = terminal.console(stderr=True)
        width = min(40, max(10, console.width // 8))
        text = partial(TextColumn, markup=False)
        columns = [BarColumn(width), text("{task.percentage:>3.0f}%"), text("{task.fields[line]}")]
        doing = [text(f"{{task.description:<{label}}}")] if label else []
        self._live = Progress(*doing, *columns, console=console)
        self._task = self._live.add_task("starting", total=None, line="")
        self._room = console.width - width - len(" 100% ") - (label + 1 if label else 0)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def live(self) -> bool:
        """Whether there is a bar, which may move at any time; plain lines come one by one."""
        return self._live is not None

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if self._live is not None:
            self._live.console.print(text, soft_wrap=True)
        else:
            print(terminal.literal(text), file=sys.stderr, flush=True)

    def interject(self, text: str) -> None:
        """Print a line from a signal handler, past the buffers of standard error.

        The signal may have interrupted a write, and a buffer that is being written refuses another:
        `RuntimeError: reentrant call`.
        """
        begin = CLEAR_LINE if self._live is not None else ""
        with contextlib.suppress(OSError):
            os.write(2, f"{begin}{terminal.literal(text)}\n".encode())

    def show(
        self,
        parts: Sequence[str],
        done: float,
        total: float,
        doing: str = "",
        *,
        last: bool = False,
    ) -> None:
        """Move the bar; or print a plain line, unless one was printed in the last ten seconds.

        Args:
            parts: texts of the line, the most important first; a narrow terminal shows fewer.
            done: how much is done of `total`.
            total: how much there is to do.
            doing: the label before the bar.
            last: print the plain line whenever the one before it was.
        """
        if self._live is not None:
            at: dict[str, Any] = dict(total=total, completed=min(done, total), description=doing)
            self._live.update(self._task, line=terminal.fit(parts, self._room), **at)
        elif last or time.monotonic() - self._said >= PLAIN_LINE_EVERY:
            self._said = time.monotonic()
            self.note(terminal.fit(parts, terminal.ENDLESS))
