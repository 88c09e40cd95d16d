"""Time-outs for environments that may never answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty
from typing import TypeVar

from ssedb.errors import TrainingError
from ssedb.threads import WorkerThread

T = TypeVar("T")

TIME_OUT = 50.0
"""Seconds after which an environment that has not answered is given up."""
CONSTRUCTION_TIME_OUT = 300.0
"""Seconds after which the making of environments is given up; some load for minutes."""
SILENT = "the environments have not answered"


def wait_for(get: Callable[[float], T], what: str = SILENT, seconds: float | None = None) -> T:
    """Wait for an answer; raise TrainingError after the time-out.

    The wait is in ten pieces: after a machine slept, or a process was stopped, only one is over.

    Args:
        get: takes seconds to wait, and raises TimeoutError or Empty after them.
        what: begins the error's line.
        seconds: the time-out; `TIME_OUT` unless given.
    """
    limit = TIME_OUT if seconds is None else seconds
    for _ in range(10):
        with suppress(TimeoutError, Empty):
            return get(limit / 10)
    raise TrainingError(f"{what} for {limit:g} s")


def result_of(future: Future[T], what: str = SILENT, seconds: float | None = None) -> T:
    """Wait for a future; raise what it raised, or TrainingError after the time-out."""
    if future.done():  # as always where the pipelined collector asks
        return future.result()

    def done(seconds: float) -> None:
        if not wait([future], seconds).done:
            raise TimeoutError

    wait_for(done, what, seconds)
    return future.result()


class Caller:
    """Thread on which environments are called, all by the same; if it is stuck, others go on."""

    def __init__(self) -> None:
        self._thread = WorkerThread()
        self.stuck = False

    def call(
        self, function: Callable[[], T], what: str = SILENT, seconds: float | None = None
    ) -> T:
        """Call a function on the thread; raise TrainingError after the time-out."""
        future = self._thread.submit(function)
        try:
            return result_of(future, what, seconds)
        finally:
            self.stuck = not future.done()

    def release(self, close: Callable[[], None]) -> None:
        """Close environments, unless they are stuck.

        An error of `close` is dropped: it would hide the one that ended the run.
        """
        if not self.stuck:
            with suppress(Exception, SystemExit):
                self.call(close)

    def close(self) -> None:
        """End the thread; one that is stuck stays so."""
        self._thread.close()
