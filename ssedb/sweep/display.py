"""One display for a whole sweep: a bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

from ssedb import terminal
from ssedb.runs.progress import PLAIN_LINE_EVERY
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
            from rich.progress import BarColumn, Progress, TextColumn

            shown = terminal.console(stderr=True)
            self._bar = terminal.bar_width(shown.width)
            share, counts = (
                TextColumn(text, markup=False)
                for text in ("{task.percentage:>3.0f}%", "{task.description}")
            )
            self._live = Progress(BarColumn(self._bar), share, counts, console=shown)
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
            self._live.console.print(text, soft_wrap=True)
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

    def line(self, width: int = terminal.ENDLESS) -> str:
        """Return the counts, those that matter most first, as many as fit into a width."""
        done, goal = sum(self._steps.values()), sum(self._goal.values())
        rate = (done - sum(self._first.values())) / max(time.monotonic() - self._began, 1e-9)
        left = clock((goal - done) / rate) if rate > 0 else "-"
        counts = [f"running {len(self._running)}", f"failed {self.failed}", f"{rate:,.0f} steps/s"]
        return terminal.fit(
            [f"finished {self.finished}/{self._total}", f"time left {left}", *counts], width
        )

    def update(self, force: bool = False) -> None:
        if self._live is not None:
            total, done = max(sum(self._goal.values()), 1), sum(self._steps.values())
            line = self.line(self._live.console.width - self._bar - len(" 100% "))
            self._live.update(self._task, total=total, completed=done, description=line)
        elif force or time.monotonic() - self._said >= PLAIN_LINE_EVERY:
            self._said = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """h:mm:ss"""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
