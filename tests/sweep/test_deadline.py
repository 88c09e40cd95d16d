"""The time of a sweep."""

import pytest

from ssedb.sweep import deadline
from ssedb.sweep.deadline import Deadline


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    return now


def test_deadline_without_minutes_is_never_over(clock):
    ever = Deadline()
    ever.measure(1e9, 1)
    clock[0] = 1e12
    assert not ever.over
    assert ever.allows(10**9)


def test_deadline_allows_what_the_slowest_run_so_far_would_finish(clock):
    end = Deadline(10, whole=True)
    assert end.allows(10**9)  # nothing is known yet
    end.measure(200, 1000)
    end.measure(100, 1000)
    assert end.allows(3000)
    assert not end.allows(3001)
    clock[0] += 500
    assert end.allows(500)
    assert not end.allows(501)
    assert not end.over
    clock[0] += 101
    assert end.over
