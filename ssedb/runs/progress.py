"""Progress of a run: what may be shown of it, and the display in a terminal or a log."""

from __future__ import annotations

import math
import time
from typing import Any, Self

from ssedb import terminal
from ssedb.config import TrainConfig
from ssedb.terminal.bar import PLAIN_LINE_EVERY, Bar


class Progress:
    """Display of a run that shows nothing; subclasses show what they choose to."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def interject(self, text: str) -> None:
        """Show a line that stays, from a signal handler: `note` may be at work already."""

    def phase(self, text: str) -> None:
        """Show what is done before the training proper."""

    def look(self, done: int, steps: int) -> None:
        """Show how many of the random agent's steps are done; 0 when it begins."""

    def start(self, steps: int, config: TrainConfig) -> None:
        """Begin at that step."""

    def step(self, steps: int) -> None:
        """Show that the environments have come to that step."""

    def train_step(self) -> None:
        """Show that another minibatch is done."""

    def log(self, row: dict[str, Any]) -> None:
        """Show the metrics of an iteration."""


silent = Progress()


def console() -> Progress:
    """Return the display of a run on standard error: a bar in a terminal, else plain lines."""
    return _Shown()


def _metrics(row: dict[str, Any]) -> list[str]:
    score = "-" if row["score"] is None else f"{row['score']:.1f}"
    alarms = [f"ALARM {name} {row[name]:.2f}" for name in row.get("alarms", [])]
    return [*alarms, f"score {score}", f"bonus_raw {row['bonus_raw']:.3g}"]


class _Shown(Bar, Progress):
    """A bar that moves within an update too: at paper size on a CPU one takes a minute."""

    def __init__(self) -> None:
        super().__init__(label=14)
        self._row: list[str] = []
        self._steps = 0

    def phase(self, text: str) -> None:
        self._phase_began = time.monotonic()
        self.note(text)

    def look(self, done: int, steps: int) -> None:
        if done == 0:
            self.phase(f"a random agent looks around for {steps:,} steps")
        # In a log, the line of the phase is enough for some seconds.
        if self.live or time.monotonic() - self._phase_began >= PLAIN_LINE_EVERY:
            self.show([f"{done:,}/{steps:,} random steps"], done, steps, "looking around")

    def start(self, steps: int, config: TrainConfig) -> None:
        self._first = self._steps = steps
        size = config.rollout_size
        self._goal = max(math.ceil(config.steps / size) * size, steps)  # runs end with a rollout
        epochs = config.ppo_epochs + config.bonus_epochs
        self._minibatches = config.num_envs // config.minibatch_envs * epochs
        self._trained = 0
        self._began = time.monotonic()
        if self.live:
            self._show("exploring")

    def step(self, steps: int) -> None:
        self._steps = steps
        self._trained = 0
        if self.live:
            self._show("exploring")

    def train_step(self) -> None:
        self._trained += 1
        if self.live:
            self._show(f"learning {self._trained}/{self._minibatches}")

    def log(self, row: dict[str, Any]) -> None:
        self._row = _metrics(row)
        if not self.live:  # a bar may be further: environments step while updates end
            self._steps = row["steps"]
        self._show("exploring")

    def _show(self, doing: str) -> None:
        steps = self._steps
        rate = (steps - self._first) / max(time.monotonic() - self._began, 1e-9)
        left = terminal.clock((self._goal - steps) / max(rate, 1e-9))
        parts = [f"{steps:,}/{self._goal:,} steps", f"left {left}", f"{rate:,.0f}/s", *self._row]
        self.show(parts, steps, self._goal, doing, last=steps >= self._goal)
