"""Number of runs at a time: as many as cores and measured memory allow, or as asked."""

from __future__ import annotations

from ssedb.sweep.worker import MemoryUse

MARGIN = 1.25
"""Runs differ, and grow: each is given so much more memory than the largest one measured."""


class JobLimit:
    """Number of runs at a time; unless it is asked for, one run first shows what a run needs.

    Attributes:
        now: runs at a time.
        most: runs at a time, however little memory they need.
    """

    def __init__(self, asked: int | None, cores: int, runs: int) -> None:
        """Begin with the number that the user has asked for, or with one to measure if None."""
        self.most = min(asked or cores, max(runs, 1))
        self._measure = asked is None
        self._there: MemoryUse | None = None  # what the first run found
        self._need_host = self._need_gpu = 0
        self.now = 1 if self._measure else self.most

    def fit(self, memory: MemoryUse) -> str | None:
        """Allow as many runs as fit into the memory that the first run found.

        Returns:
            What a run needs, in words, if the limit changed.
        """
        if not self._measure:
            return None
        there = self._there = self._there or memory
        self._need_host = max(self._need_host, memory.host)
        self._need_gpu = max(self._need_gpu, memory.gpu)
        fitting = int((there.host_free + there.host) / (MARGIN * self._need_host))
        need = f"{self._need_host / 2**30:.1f} GiB"
        if there.gpus:
            on_each = int((there.gpu_free + there.gpu) / (MARGIN * self._need_gpu))
            fitting = min(fitting, there.gpus * on_each)
            need += f" and {self._need_gpu / 2**30:.1f} GiB of a GPU"
        before, self.now = self.now, max(1, min(fitting, self.most))
        return need if self.now != before else None

    def lower(self) -> None:
        """Allow one run less from now on: memory ran out."""
        if self._measure and self.now > 1:
            self.now = self.most = self.now - 1
