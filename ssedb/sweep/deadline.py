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
        self._slowest = 0.0  # seconds of a step

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def measure(self, seconds: float, steps: int) -> None:
        """Note how long a run of so many steps took from its beginning to its end."""
        self._slowest = max(self._slowest, seconds / steps)

    def allows(self, steps: int) -> bool:
        """Tell whether to begin a run: it would finish at the speed of the slowest so far."""
        return not self._whole or time.monotonic() + self._slowest * steps <= self._end
