"""The time that a sweep has, and whether another run would finish within it."""

from __future__ import annotations

import math
import time


class Deadline:
    """End of a sweep's time."""

    def __init__(self, minutes: float | None = None, whole: bool = False) -> None:
        """Start the clock; with `whole`, only runs begin that would finish in those minutes."""
        self._end = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._whole = whole
        self._slowest: dict[object, float] = {}  # seconds of a step, by the kind of run

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def measure(self, kind: object, seconds: float, steps: int) -> None:
        """Note how long a run of a kind and of so many steps took from its beginning to its end."""
        self._slowest[kind] = max(self._slowest.get(kind, 0.0), seconds / steps)

    def allows(self, kind: object, steps: int) -> bool:
        """Tell whether to begin a run: it would finish if as slow as the slowest of its kind.

        As long as no run of its kind has finished, the slowest of all counts.
        """
        slowest = self._slowest.get(kind, max(self._slowest.values(), default=0.0))
        return not self._whole or time.monotonic() + slowest * steps <= self._end
