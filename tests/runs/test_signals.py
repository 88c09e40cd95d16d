"""Handlers of signals go when their block ends."""

import signal
import threading

from ssedb.runs.signals import handled, stop_requests


def test_stop_requests_tells_the_first_signal_from_later_ones_and_ends():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    asked = []
    with stop_requests(asked.append):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert asked == [False, True, True]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


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
