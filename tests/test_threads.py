"""Threads of emulators step back, keep to their cores, and may be refused both; couriers go with those they serve."""

import itertools
import os
import sys
import threading
import time
import weakref

import pytest
import torch

from ssedb import threads

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lets a thread be scheduled on its own"
)


@on_linux
@pytest.mark.parametrize("cores", [[0, 1, 2, 3], [0, 2, 3], [5]])
def test_threads_that_give_way_run_when_nobody_else_does_each_on_two_cores(cores, monkeypatch):
    places, bind, allowed = {}, os.sched_setaffinity, os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))
    monkeypatch.setattr(
        os,
        "sched_setaffinity",
        lambda thread, to: (places.update({thread: to}), bind(thread, allowed)),
    )
    monkeypatch.setattr(threads, "_seats", itertools.count())
    done, mine = threading.Event(), os.sched_getscheduler(threading.get_native_id())
    made = [threading.Thread(target=done.wait, daemon=True) for _ in range(2 * len(cores))]
    for some in (made[: len(cores)], made[len(cores) :]):  # two pools
        with threads.giving_way(torch.device("cuda")):
            for thread in some:
                thread.start()
    assert {os.sched_getscheduler(thread.native_id) for thread in made} == {os.SCHED_IDLE}
    assert os.sched_getscheduler(threading.get_native_id()) == mine
    done.set()
    assert set(places) == {thread.native_id for thread in made}
    assert all(len(to) == min(2, len(cores)) for to in places.values())
    load = [sum(core in to for to in places.values()) for core in cores]
    assert min(load) >= 2, "the work is spread over all cores"
    assert len(cores) % 2 or min(load) == max(load), "and evenly, where pairs come out even"


@on_linux
@pytest.mark.parametrize("call", ["sched_setaffinity", "sched_setscheduler", "setpriority"])
def test_a_sandbox_may_refuse_to_schedule(call, monkeypatch):
    def refuse(*args):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, call, refuse)
    if call == "setpriority":  # what is tried when the scheduler stays as it is
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
    done = threading.Event()
    with threads.giving_way(torch.device("cuda")):
        threading.Thread(target=done.wait, daemon=True).start()
    done.set()


def test_a_courier_keeps_nothing_alive_and_goes_with_its_owner():
    class Task:
        def __call__(self):
            return threading.current_thread()

    courier, task = threads.Courier(torch.device("cpu")), Task()
    thread, left = courier.submit(task).result(5), weakref.ref(task)
    del task
    wait_until(lambda: left() is None)
    assert thread.is_alive()
    del courier
    wait_until(lambda: not thread.is_alive())


def wait_until(done):
    limit = time.monotonic() + 5
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.01)
