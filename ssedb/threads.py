"""Worker threads, of engines, collectors and environments."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]
CPU = torch.device("cpu")


class WorkerThread:
    """A worker thread that runs one function after the other; a stuck one lets the process end."""

    def __init__(self, device: torch.device = CPU) -> None:
        """Start the thread.

        Args:
            device: the device that its functions use.
        """
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        gpu = None
        if device.type == "cuda":
            gpu = torch.cuda.current_device() if device.index is None else device.index
        threading.Thread(target=_work, args=(self._jobs, gpu), daemon=True).start()
        self._end = weakref.finalize(self, self._jobs.put, None)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function; raise RuntimeError if the thread has been closed."""
        if not self._end.alive:
            raise RuntimeError("the worker thread has been closed; make another one")
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return future

    def close(self) -> None:
        """End the thread when it has run what was queued."""
        self._end()


def _work(jobs: SimpleQueue[Job | None], gpu: int | None) -> None:
    if gpu is not None:  # else the thread would take memory of the first GPU
        torch.cuda.set_device(gpu)
    while (job := jobs.get()) is not None:
        future, function = job
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        del job, future, function  # while the thread waits it keeps nothing alive
