"""Background updates in slices."""

import threading

import pytest
import torch

from ssedb.engine.overlap import OverlappingEngine

CPU = torch.device("cpu")


def updates(log, count=3):
    for number in range(count):
        log.append(number)
        yield


def test_idle_runs_one_update_and_the_result_is_made_on_the_worker_thread():
    engine, log = OverlappingEngine(CPU), []
    task = engine.background(updates(log), result=threading.current_thread)
    assert log == []
    for done in (1, 2, 3):
        engine.idle()
        assert log == list(range(done))
    engine.idle()
    assert not task.waited
    assert task.wait() is not threading.main_thread()
    assert task.waited
    engine.idle()
    assert log == [0, 1, 2]


def test_wait_runs_what_is_left_and_gives_the_same_result_again():
    engine, log = OverlappingEngine(CPU), []
    task = engine.background(updates(log), result=lambda: list(log))
    engine.idle()
    assert task.wait() == [0, 1, 2]
    log.append("later")
    assert task.wait() == [0, 1, 2]


def test_wait_with_an_error_in_the_result_raises_it():
    task = OverlappingEngine(CPU).background(iter(()), result=lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            task.wait()
