"""A run in its folder: trained from the beginning or resumed, logged, saved, stopped by a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssedb.analysis.maps import MapLog
from ssedb.collect.environments import look_around
from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.engine.distributed import Group
from ssedb.engine.host import machine, pick_device
from ssedb.runs import checkpoint
from ssedb.runs.alarms import Watch
from ssedb.runs.blame import blaming
from ssedb.runs.folder import OtherProcess, RunFolder, misfit
from ssedb.runs.progress import Progress, silent
from ssedb.trainer import Trainer


@dataclass(frozen=True)
class TrainResult:
    """What came out of a run."""

    out: Path
    steps: int
    finished: bool
    summary: dict[str, Any]


def train(config: TrainConfig, progress: Progress = silent) -> TrainResult:
    """Trains from the beginning into `config.out`."""
    return (
        train_in(RunFolder.create(config), progress) if distributed.rank() == 0 else train_along()
    )


def resume(path: Path | str, progress: Progress = silent, **overrides: Any) -> TrainResult:
    """Go on with the run in `path`; overrides may be `steps`, `device` and others that do not make it another run."""
    return (
        train_in(RunFolder.reopen(Path(path), **overrides), progress)
        if distributed.rank() == 0
        else train_along()
    )


def train_along() -> TrainResult:
    """Takes part, under torchrun, in the run of the first process, which keeps the folder and the display."""
    return train_in(OtherProcess())


def train_in(run: RunFolder, progress: Progress = silent) -> TrainResult:
    """Trains in an open run folder until its steps are done, or a signal asks to stop."""
    trainer = None
    try:
        when = lambda: f"at step {0 if trainer is None else trainer.reached:,}"  # noqa: E731
        with blaming(run.path, when), distributed.process_group() as group, ExitStack() as later:
            config = run.config = group.from_first(lambda: run.config)
            device = pick_device(config.device)
            if group.size > 1 and device.type == "cuda":
                torch.cuda.set_device(device)
            later.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
            later.enter_context(progress)
            trainer, resumed = _set_up(run, progress, group)
            if trainer.steps >= config.steps:
                progress.note(
                    f"nothing left to do at step {trainer.steps:,}; --steps makes the run longer"
                )
            progress.start(trainer.steps, config)
            run.start_logging(resumed)
            watch = Watch(run.rows())
            if trainer.updates == 0:  # whatever happens in the first update, the run can be resumed
                run.save_checkpoint(trainer.state_dict(), {"steps": 0, "updates": 0})
            maps = MapLog(run.path, trainer)
            maps.record()
            stopping = later.enter_context(
                stop_on_signals(progress)
            )  # before this there is nothing to save
            row: dict[str, Any] = {}

            def report(new: dict[str, Any] | None) -> None:
                nonlocal row
                if new is not None:
                    row = new
                    for alarm in watch.see(row):
                        progress.note(f"ALARM at step {row['steps']:,}: {alarm.text(vars(config))}")
                    if watch.standing:
                        row["alarms"] = watch.standing
                    run.log(row)
                    maps.record()
                    progress.log(row)

            saved_at, stop = time.monotonic(), False
            while trainer.steps < config.steps and not stop:
                report(trainer.iterate())
                counters = {"steps": trainer.steps, "updates": trainer.updates}
                due = group.any(time.monotonic() - saved_at >= 60 * config.checkpoint_minutes)
                stop = group.any(stopping())
                if due or trainer.steps >= config.steps or stop:
                    report(trainer.finish())
                    trainer.check_weights()
                    run.save_checkpoint(trainer.state_dict(), counters)
                    saved_at = time.monotonic()
            finished = trainer.steps >= config.steps
            summary = {
                "finished": finished,
                **trainer.scores.summary(),
                "last": row,
                "alarms": watch.as_data(),
                "device": str(trainer.device),
            }
            summary |= {"machine": machine(trainer.device)}
            if row:
                run.write_summary({"steps": trainer.steps, **summary})
        return TrainResult(config.out, trainer.steps, finished, summary)
    finally:
        if trainer is not None:
            trainer.close()
        run.close()


def _set_up(
    run: RunFolder, progress: Progress, group: Group
) -> tuple[Trainer, dict[str, int] | None]:
    """A fresh trainer, or one that goes on from the run's newest whole checkpoint."""
    config = run.config
    saved = group.from_first(lambda: checkpoint.load_latest(run.checkpoints))
    if saved is None:
        seen = look_around(config, progress, group)
        trainer = Trainer(config, progress=progress, group=group)
        trainer.fit_observations(seen)
        if not run.has_metrics:
            return trainer, None
        progress.note("no checkpoint yet; the run begins again")
        return trainer, {"steps": 0, "updates": 0}
    state, _, complaints = saved
    for complaint in complaints:
        progress.note(f"{complaint}; going on from the one before it")
    # Emulators that cannot be restored start new episodes; another stream keeps them from replaying the first ones.
    trainer = Trainer(config, progress=progress, group=group, stream=2 + state["updates"])
    try:
        trainer.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError) as error:
        raise misfit(run.path, error) from None
    progress.note(
        f"resumed at step {trainer.steps:,}"
        + ("" if trainer.collector.restorable else "; episodes begin afresh")
    )
    return trainer, {"steps": trainer.steps, "updates": trainer.updates}


@contextmanager
def stop_on_signals(progress: Progress = silent) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks to stop after this update; the second stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        progress.note("stopping after this update, with a checkpoint; once more stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
