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
    ever.measure("rnd", 1e9, 1)
    clock[0] = 1e12
    assert not ever.over
    assert ever.allows("rnd", 10**9)


def test_deadline_allows_what_the_slowest_run_of_the_kind_would_finish(clock):
    end = Deadline(10, whole=True)
    assert end.allows("rnd", 10**9)  # nothing is known yet
    end.measure("rnd", 200, 1000)
    end.measure("rnd", 100, 1000)
    end.measure("none", 10, 1000)
    assert end.allows("rnd", 3000)
    assert not end.allows("rnd", 3001)
    assert end.allows("none", 60_000)
    assert not end.allows("none", 60_001)
    assert end.allows("db", 3000)  # as the slowest of all
    assert not end.allows("db", 3001)
    clock[0] += 500
    assert end.allows("rnd", 500)
    assert not end.allows("rnd", 501)
    assert not end.over
    clock[0] += 101
    assert end.over
