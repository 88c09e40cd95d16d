"""What a run shows while it runs: a live bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

from ssedb import terminal
from ssedb.config import TrainConfig

PLAIN_LINE_EVERY = 10.0  # seconds


class Progress:
    """Shows nothing; the displays below fill in what they show."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def note(self, text: str) -> None:
        """A line that stays."""

    def phase(self, text: str) -> None:
        """What is being done before the training proper."""

    def start(self, steps: int, config: TrainConfig) -> None:
        """Training begins at that step."""

    def step(self, steps: int) -> None:
        """The environments have come to that step."""

    def learn(self) -> None:
        """Another minibatch has been learned from."""

    def log(self, row: dict[str, Any]) -> None:
        """An update is done."""


silent = Progress()


def console() -> Progress:
    """The display that fits where the output goes."""
    return _Bar() if sys.stderr.isatty() else _Lines()


def _figures(row: dict[str, Any]) -> list[str]:
    score = "-" if row["score"] is None else f"{row['score']:.1f}"
    alarms = [f"ALARM {name} {row[name]:.2f}" for name in row.get("alarms", [])]
    return [*alarms, f"score {score}", f"bonus {row['bonus_raw']:.3g}"]


class _Counted(Progress):
    """Knows how far the run is."""

    def start(self, steps: int, config: TrainConfig) -> None:
        self.first, self.goal, self.size = steps, config.steps, config.rollout_size
        self.minibatches = (
            config.num_envs // config.minibatch_envs * (config.ppo_epochs + config.bonus_epochs)
        )
        self.learned, self.began = 0, time.monotonic()

    def rate(self, steps: int) -> float:
        return (steps - self.first) / max(time.monotonic() - self.began, 1e-9)

    def left(self, steps: int) -> str:
        seconds = int(max(self.goal - steps, 0) / max(self.rate(steps), 1e-9))
        hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
        return f"{hours}:{minutes:02}:{seconds:02}"

    def pace(self, steps: int) -> list[str]:
        return [f"left {self.left(steps)}", f"{self.rate(steps):,.0f}/s"]


class _Lines(_Counted):
    """A line at most every ten seconds, and one at the end."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    phase = note

    def log(self, row: dict[str, Any]) -> None:
        now, steps = time.monotonic(), row["steps"]
        if now - self._last < PLAIN_LINE_EVERY and steps < self.goal:
            return
        self._last = now
        self.note("  ".join([f"{steps:,}/{self.goal:,} steps", *self.pace(steps), *_figures(row)]))


class _Bar(_Counted):
    """A bar that moves within an update too: at paper size on a CPU one takes a minute."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        texts = ("{task.description:<14}", "{task.percentage:>3.0f}%", "{task.fields[info]}")
        doing, share, info = (TextColumn(text, markup=False) for text in texts)
        shown = terminal.console(stderr=True)
        self._bar = terminal.bar_width(shown.width)
        self._live = Progress(doing, BarColumn(self._bar), share, info, console=shown)
        self._task = self._live.add_task("starting", total=None, info="")
        self._row: list[str] = []
        self._steps = 0

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._live.console.print(text)

    phase = note

    def start(self, steps: int, config: TrainConfig) -> None:
        super().start(steps, config)
        self._live.update(self._task, description="exploring", total=self.goal, completed=steps)

    def step(self, steps: int) -> None:
        self._steps, self.learned = steps, 0
        self._show("exploring")

    def learn(self) -> None:
        self.learned += 1
        self._show(f"learning {self.learned}/{self.minibatches}")

    def log(self, row: dict[str, Any]) -> None:
        self._row = _figures(row)
        self._show("exploring")

    def _show(self, doing: str) -> None:
        done = min(self._steps, self.goal)
        room = self._live.console.width - self._bar - len(f"{'':<14}  100% ")
        info = terminal.fit([f"{self._steps:,} steps", *self.pace(self._steps), *self._row], room)
        self._live.update(self._task, description=doing, completed=done, info=info)
