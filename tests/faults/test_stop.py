"""Ctrl-C and SIGTERM, once and twice, in a save and elsewhere: resumable, with the same numbers."""

import os
import signal

import pytest

from ssedb.runs.loop import resume
from ssedb.runs.progress import Progress
from tests.faults.forks import last_state, numbers, same, small_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    small_run(out)
    return out


class Signals(Progress):
    """Sends signals in the second update."""

    def __init__(self, *signals):
        self.signals = signals

    def log(self, row):
        if row["updates"] == 2:
            for number in self.signals:
                signal.raise_signal(number)


def in_the_next_save(monkeypatch, *signals):
    """Send signals while the checkpoint of step 64 is flushed to the disk."""
    sync = os.fsync

    def strike(descriptor):
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("064.ckpt.part"):
            for number in signals:
                signal.raise_signal(number)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", strike)


def is_the_whole_run(out, whole):
    resume(out)
    assert numbers(out) == numbers(whole)
    assert same(last_state(out), last_state(whole))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["update", "save"])
def test_one_signal_ends_the_run_with_a_checkpoint(tmp_path, whole, monkeypatch, number, where):
    with monkeypatch.context() as patch:
        if where == "save":
            in_the_next_save(patch, number)
        result = small_run(tmp_path / "run", progress=Signals(*[number] * (where == "update")))
    assert (result.finished, result.steps) == (False, 64 if where == "update" else 96)
    assert last_state(tmp_path / "run")["steps"] == result.steps
    is_the_whole_run(tmp_path / "run", whole)


@pytest.mark.parametrize("where", ["update", "save"])
def test_two_signals_end_the_run_at_once_and_it_can_be_resumed(tmp_path, whole, monkeypatch, where):
    twice = (signal.SIGTERM, signal.SIGINT)
    with monkeypatch.context() as patch:
        if where == "save":
            in_the_next_save(patch, *twice)
        strikes = Signals(*twice * (where == "update"))
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path / "run", progress=strikes)
    assert last_state(tmp_path / "run")["steps"] == 32
    assert not list((tmp_path / "run").rglob(".*.part"))
    is_the_whole_run(tmp_path / "run", whole)
