"""One display for a whole sweep: a bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time

from ssedb import terminal
from ssedb.runs.folder import SWEEP_LOG
from ssedb.sweep.grid import Planned
from ssedb.terminal.bar import Bar


class Display(Bar):
    """Counts of runs and steps, shown as one line."""

    def __init__(self, runs: list[Planned], finished_before: int) -> None:
        self._goal = {run.id: run.config.steps for run in runs}
        self._steps: dict[str, int] = {}
        self._first: dict[str, int] = {}  # where a run stood when this sweep took it up
        self._running: set[str] = set()
        self.finished, self.failed, self._total = finished_before, 0, len(runs) + finished_before
        self._began = time.monotonic()
        super().__init__()

    def __exit__(self, *error: object) -> None:
        self.update(last=True)
        super().__exit__(*error)

    def started(self, run: Planned) -> None:
        """Count a run as running."""
        self._running.add(run.id)

    def stepped(self, run_id: str, steps: int) -> None:
        """Note the step that a run has come to."""
        self._first.setdefault(run_id, steps)
        self._steps[run_id] = max(self._steps.get(run_id, 0), min(steps, self._goal[run_id]))
        self._first[run_id] = min(self._first[run_id], self._steps[run_id])

    def ended(self, run: Planned, how: str, error: str = "") -> None:
        """Count and tell a run as finished or failed; by any other `how` it is tried again."""
        self._running.discard(run.id)
        if how == "finished":
            self.finished += 1
            self.stepped(run.id, run.config.steps)
            self.note(f"finished {run.name}")
        elif how == "failed":
            self.failed += 1
            self._goal[run.id] = self._steps.get(run.id, 0)  # its other steps will not be made
            log = run.folder / SWEEP_LOG
            self.note(f"FAILED {run.name}: {error}; the whole story is in {log}")

    def parts(self) -> list[str]:
        """Return the counts as texts, the most important first."""
        done, goal = sum(self._steps.values()), sum(self._goal.values())
        rate = (done - sum(self._first.values())) / max(time.monotonic() - self._began, 1e-9)
        left = terminal.clock((goal - done) / rate) if rate > 0 else "-"
        counts = [f"running {len(self._running)}", f"failed {self.failed}", f"{rate:,.0f} steps/s"]
        return [f"finished {self.finished}/{self._total}", f"time left {left}", *counts]

    def update(self, last: bool = False) -> None:
        """Show the counts; `last` shows them however short the time since they were shown."""
        total = max(sum(self._goal.values()), 1)
        self.show(self.parts(), sum(self._steps.values()), total, last=last)
