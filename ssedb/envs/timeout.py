"""Time-outs for environments that may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty
from typing import TypeVar

from ssedb.errors import TrainingError

T = TypeVar("T")

TIME_OUT = 50.0
"""Seconds to wait for an environment's answer."""


def wait_for(get: Callable[[float], T]) -> T:
    """Wait for an answer; raise TrainingError after the time-out.

    The wait is in ten pieces: after a machine slept, or a process was stopped, only one is over.

    Args:
        get: waits the seconds it is given, and then raises TimeoutError or Empty.
    """
    for _ in range(10):
        with suppress(TimeoutError, Empty):
            return get(TIME_OUT / 10)
    raise TrainingError(f"the environments have not answered for {TIME_OUT:g} s")


def call(function: Callable[[], T]) -> T:
    """Call a function that may never return; raise TrainingError after the time-out."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # if it is stuck, the process can still end
    return wait_for(future.result)
