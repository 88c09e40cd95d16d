"""The time that a sweep has, and whether another run would finish within it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

WINDOW = 60.0
"""Seconds over which the rate of a run is measured."""
SHORTEST = 5.0
"""Seconds that a rate needs at least."""
MARGIN = 1.1
"""Factor by which runs may turn out slower than expected."""


class Pace:
    """Progress of a run from its dispatch on, by the steps that its worker tells of.

    Attributes:
        began: when the worker got the run.
        first: step at which the run began or went on; None before the worker says so.
        start_up: seconds until the first iteration was over; 0 before that.
        told: when the worker told of steps last.
        left: steps that were left then.
        rate: steps per second of late; None before it is known.
        sharing: runs that stepped, at the fewest, while the rate was measured.
    """

    def __init__(self, kind: object, steps: int) -> None:
        """Start the clock of a run of a kind and of so many steps."""
        self.kind, self.steps, self.left = kind, steps, steps
        self.began = self.told = time.monotonic()
        self.first: int | None = None
        self.start_up = 0.0
        self.rate: float | None = None
        self.sharing = 1
        self._marks: deque[tuple[float, int, int]] = deque()  # time, step, runs that stepped

    def note(self, step: int, stepping: int) -> None:
        """Note the step that the run has reached, and how many runs step at present."""
        self.told, self.left = time.monotonic(), self.steps - step
        if self.first is None:  # no mark: the first iteration may capture CUDA graphs
            self.first = step
            return
        if not self._marks:
            self.start_up = self.told - self.began
        self._marks.append((self.told, step, stepping))
        while len(self._marks) > 2 and self.told - self._marks[1][0] >= WINDOW:
            self._marks.popleft()
        since, before, _ = self._marks[0]
        if self.told - since >= SHORTEST and step > before:
            self.rate = (step - before) / (self.told - since)
            self.sharing = min(mark[2] for mark in self._marks)

    def lost(self, seconds: float) -> bool:
        """Tell whether the run is too slow to finish in those seconds, whatever else begins."""
        return self.rate is not None and self.left / self.rate > MARGIN * seconds


class Deadline:
    """End of a sweep's time.

    Attributes:
        shared: whether runs share GPUs, and slow each other down.
    """

    def __init__(self, minutes: float | None = None, whole: bool = False) -> None:
        """Start the clock; with `whole`, only runs begin that would finish in those minutes."""
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._whole = whole
        self.shared = False
        self._slowest: dict[object, float] = {}  # seconds of a step, by the kind of run
        self._start_up = self._ending = 0.0  # longest of the runs that have finished, in seconds

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def measure(self, pace: Pace) -> None:
        """Note how long a run took that has just finished."""
        if pace.first is None:  # it had ended before, and perhaps lacked its probe
            return
        now = time.monotonic()
        self._start_up = max(self._start_up, pace.start_up)
        self._ending = max(self._ending, now - pace.told)
        if pace.first == 0:  # a resumed run has mostly loaded, and tells no speed
            seconds = now - pace.began
            self._slowest[pace.kind] = max(self._slowest.get(pace.kind, 0.0), seconds / pace.steps)

    def allows(self, kind: object, steps: int, under_way: Sequence[Pace]) -> bool:
        """Tell whether to begin a run: it and those under way would finish beside each other.

        As long as no run under way has a rate, the new run counts as being as slow as the slowest
        of its kind that has finished, or the slowest of all.
        """
        if not self._whole:
            return True
        left = self._end - time.monotonic()
        runs = [*under_way, Pace(kind, steps)]
        if all(self._rate(pace, len(runs)) is None for pace in runs):
            slowest = max(self._slowest.values(), default=0.0)
            return self._slowest.get(kind, slowest) * steps <= left
        return all(self._seconds(pace, runs) <= left for pace in runs if not pace.lost(left))

    def _seconds(self, pace: Pace, runs: Sequence[Pace]) -> float:
        """Return the seconds that one of these runs needs from now on, with all of them at work."""
        if rate := self._rate(pace, len(runs)):
            return pace.left / rate + self._ending
        rates = [(run.kind, rate) for run in runs if (rate := self._rate(run, len(runs)))]
        of_kind = [rate for kind, rate in rates if kind == pace.kind]
        if pace.kind in self._slowest and not of_kind:
            return self._slowest[pace.kind] * pace.left
        start_up = max(self._start_up, *(run.start_up for run in runs))
        return start_up + pace.left / min(of_kind or [rate for _, rate in rates]) + self._ending

    def _rate(self, pace: Pace, runs: int) -> float | None:
        """Return the rate that a run will have among so many; None if it is not known."""
        if pace.rate is None or not self.shared:
            return pace.rate and pace.rate / MARGIN
        if pace.sharing == 1 and not self._slowest:
            return None  # the first run does not tell how many fill a GPU
        return pace.rate / (MARGIN * max(1.0, runs / pace.sharing))
