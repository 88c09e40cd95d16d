"""Handlers of signals go when their block ends."""

import signal
import threading
from types import SimpleNamespace

import pytest

from ssedb.runs import signals
from ssedb.runs.signals import SAME_REQUEST, handled, stop_requests

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose last entry is the time that a handler reads."""
    times = [100.0]
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: times[-1]))
    return times


@pytest.mark.parametrize("first", NUMBERS)
def test_stop_requests_tells_the_first_signal_from_later_ones_and_ends(clock, first):
    before = [*map(signal.getsignal, NUMBERS)]
    asked = []
    unasked = lambda number, frame: None  # noqa: E731 (rather than the end of this process)
    with handled(unasked, *NUMBERS), stop_requests(asked.append):
        for number in (first, *NUMBERS):
            signal.raise_signal(number)
            clock.append(clock[-1] + SAME_REQUEST)
    assert asked == [False, True, True, True]
    assert [*map(signal.getsignal, NUMBERS)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_one_request_that_comes_twice_is_the_first(clock, number):
    asked = []
    # Under nohup the hangup would be ignored.
    with handled(signal.SIG_DFL, signal.SIGHUP), stop_requests(asked.append):
        signal.raise_signal(signal.SIGTERM)
        clock.append(clock[-1] + 0.9 * SAME_REQUEST)
        signal.raise_signal(number)
        assert asked == [False]
        signal.raise_signal(signal.SIGINT)  # a user in a hurry
        assert asked == [False, True]
        clock.append(clock[-1] + 10 * SAME_REQUEST)
        for _ in range(3):  # a second request, which comes three times
            signal.raise_signal(number)
    assert asked == [False, True, True]


def test_stop_requests_leave_the_hangup_that_nohup_ignores():
    asked = []
    with handled(signal.SIG_IGN, signal.SIGHUP), stop_requests(asked.append):
        signal.raise_signal(signal.SIGHUP)
    assert asked == []


def test_handled_in_another_thread_leaves_signals_alone():
    found = []

    def block():
        with handled(signal.SIG_IGN, signal.SIGINT):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
    assert found != [signal.SIG_IGN]
