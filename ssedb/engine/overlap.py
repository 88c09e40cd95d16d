"""Background work in pieces, while other steps go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, TypeVar

import torch

from ssedb.engine.base import Engine, Task
from ssedb.threads import WorkerThread

T = TypeVar("T")


class OverlappingEngine(Engine):
    """Engine that does a piece of background work whenever the collector calls `idle`.

    Background work draws from a generator of its own, and readers of its results wait for its task
    first. So the numbers are those of the plain engine.
    """

    def __init__(
        self, device: torch.device, *, precision: str = "fp32", seed: int = 0, overlap: bool = True
    ) -> None:
        super().__init__(device, precision=precision, seed=seed, own_draws=True)
        self.overlaps = overlap
        self._worker = WorkerThread(device) if overlap else None
        self._task: Task[Any] | None = None

    def background(self, work: Iterator[object], result: Callable[[], T]) -> Task[T]:
        """Keep work for when the engine is idle, or for who waits for the task."""
        if not self.overlaps:
            return super().background(work, result)
        self._task = Task(work, result, self)
        return self._task

    def idle(self) -> None:
        """Do one piece of background work. All at once would keep environments waiting."""
        if self._task is not None:
            self._task.advance()

    def close(self) -> None:
        """Wait a second for the worker thread: a process must not end while it uses the device."""
        if self._worker is not None:
            wait([self._worker.submit(lambda: None)], timeout=1)
            self._worker.close()
            self._worker = None

    def later(self, function: Callable[[], T]) -> Callable[[], T]:
        """Call a function on the worker thread: it may wait for the device."""
        if self._worker is None:
            return super().later(function)
        return self._worker.submit(function).result
