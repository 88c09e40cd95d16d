"""One display for a whole sweep: a bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

from ssedb.progress import PLAIN_LINE_EVERY
from ssedb.sweep.grid import Planned


class Display:
    """Counts runs and steps; what it shows is one line."""

    def __init__(self, runs: list[Planned], finished_before: int) -> None:
        self._goal = {run.id: run.config.steps for run in runs}
        self._steps: dict[str, int] = {}
        self._first: dict[str, int] = {}  # where a run stood when this sweep took it up
        self._running: set[str] = set()
        self.finished, self.failed, self._total = finished_before, 0, len(runs) + finished_before
        self._began, self._said = time.monotonic(), time.monotonic()
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"))
            self._live = Progress(*columns, console=Console(stderr=True))
            self._task = self._live.add_task("starting", total=max(sum(self._goal.values()), 1))

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.update(force=True)
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def started(self, run: Planned) -> None:
        self._running.add(run.id)

    def stepped(self, run_id: str, steps: int) -> None:
        self._first.setdefault(run_id, steps)
        self._steps[run_id] = max(self._steps.get(run_id, 0), min(steps, self._goal[run_id]))
        self._first[run_id] = min(self._first[run_id], self._steps[run_id])

    def ended(self, run: Planned, how: str) -> None:
        """How: finished, failed, or anything else for a run that is to be taken up again."""
        self._running.discard(run.id)
        if how == "finished":
            self.finished += 1
            self.stepped(run.id, run.config.steps)
        elif how == "failed":
            self.failed += 1
            self._goal[run.id] = self._steps.get(run.id, 0)  # its other steps will not be made

    def line(self) -> str:
        done, goal = sum(self._steps.values()), sum(self._goal.values())
        rate = (done - sum(self._first.values())) / max(time.monotonic() - self._began, 1e-9)
        left = self._total - self.finished - self.failed - len(self._running)
        counts = f"finished {self.finished}  running {len(self._running)}  failed {self.failed}  left {left}"
        return f"{counts}  {rate:,.0f} steps/s  time left {clock((goal - done) / rate) if rate > 0 else '-'}"

    def update(self, force: bool = False) -> None:
        if self._live is not None:
            total, done = max(sum(self._goal.values()), 1), sum(self._steps.values())
            self._live.update(self._task, total=total, completed=done, description=self.line())
        elif force or time.monotonic() - self._said >= PLAIN_LINE_EVERY:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """h:mm:ss"""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
