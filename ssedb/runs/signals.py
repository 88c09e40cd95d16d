"""Ctrl-C and SIGTERM: handlers that go when their block ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
    """Call `ask` for each Ctrl-C or SIGTERM; its argument says whether that is not the first."""
    again = False

    def received(number: int, frame: Any) -> None:
        nonlocal again
        before, again = again, True
        ask(before)

    with handled(received, signal.SIGINT, signal.SIGTERM):
        yield
