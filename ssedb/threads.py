"""Threads beside the learner's own: those of the emulators, and those that do what it need not wait for."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch

from ssedb.errors import TrainingError

T = TypeVar("T")

_seats = itertools.count(os.getpid())  # several processes begin at different cores


@contextmanager
def giving_way(device: torch.device) -> Iterator[None]:
    """Threads that are started here step back, on Linux, behind the one that feeds them and the GPU: there are more of them
    than cores, and a thread that it wakes would otherwise take its core for milliseconds while all others run dry.

    Each keeps to two cores, in turn, as wandering over all of them costs a few percent. (One would do as well, but whoever
    keeps that one busy would stop a whole pool.) A sandbox may refuse all of this.
    """
    if device.type != "cuda" or sys.platform != "linux":
        yield
        return
    before = set(os.listdir("/proc/self/task"))
    yield
    cores = sorted(os.sched_getaffinity(0))
    pairs = [{core, cores[i + 1 - len(cores)]} for i, core in enumerate(cores)][::2]
    for thread in sorted(int(thread) for thread in set(os.listdir("/proc/self/task")) - before):
        with suppress(OSError):
            os.sched_setaffinity(thread, pairs[next(_seats) % len(pairs)])
        try:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, 10)


PATIENCE = 50.0
"""Seconds after which an environment that has not answered is given up."""


def patiently(get: Callable[[float], T]) -> T:
    """Waits for `get`, which takes seconds to wait and raises TimeoutError or Empty after them. In pieces, as a machine that
    slept, or a process that was stopped, finds the time over when it goes on."""
    for _ in range(10):
        with suppress(TimeoutError, Empty):
            return get(PATIENCE / 10)
    raise TrainingError(f"the environments have not answered for {PATIENCE:g} s")


class Courier:
    """A thread that does one thing after the other for whoever has made it. If it is stuck, the process can end."""

    def __init__(self, device: torch.device) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        gpu = None
        if device.type == "cuda":
            gpu = torch.cuda.current_device() if device.index is None else device.index
        threading.Thread(target=_work, args=(self._tasks, gpu), daemon=True).start()
        self._end = weakref.finalize(self, self._tasks.put, None)

    def submit(self, task: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._tasks.put((future, task))
        return future

    def close(self) -> None:
        """Lets it go when it has done what it has been given."""
        self._end()


def _work(
    tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None], gpu: int | None
) -> None:
    if (
        gpu is not None
    ):  # each thread must be told which is meant, or it would take a piece of the first
        torch.cuda.set_device(gpu)
    while (given := tasks.get()) is not None:
        future, task = given
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)
        del given, future, task  # while it waits it keeps nothing alive
