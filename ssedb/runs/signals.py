"""Ctrl-C, SIGTERM and SIGHUP: handlers that go when their block ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SAME_REQUEST = 2.0
"""Seconds within which signals other than Ctrl-C are one request."""

Handler = Callable[[int, Any], None] | signal.Handlers | int | None


@contextmanager
def handled(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Install a handler for as long as the block takes; Python lets the main thread alone do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stop_requests(ask: Callable[[bool], None]) -> Iterator[None]:
    """Call `ask` for each request to stop; its argument says whether that is not the first.

    Requests are Ctrl-C, SIGTERM and, unless nohup has had it ignored, SIGHUP. One request may come
    twice: schedulers signal every process of a job, some of which pass the signal on, and a closing
    terminal repeats itself. So all but Ctrl-C count once in SAME_REQUEST seconds.
    """
    last: float | None = None

    def received(number: int, frame: Any) -> None:
        nonlocal last
        before, now = last, time.monotonic()
        if before is None or number == signal.SIGINT or now - before >= SAME_REQUEST:
            last = now
            ask(before is not None)

    with handled(received, signal.SIGINT, *ending_signals()):
        yield


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM and, unless nohup has had it ignored, SIGHUP."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGHUP)
