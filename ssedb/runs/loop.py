"""A run in its folder: trained or resumed, logged, saved, stopped by a signal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssedb.collect.environments import look_around
from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.engine.distributed import Group
from ssedb.engine.host import machine, pick_device
from ssedb.engine.precision import deterministic_kernels
from ssedb.runs import checkpoint
from ssedb.runs.alarms import Watch
from ssedb.runs.blame import blaming
from ssedb.runs.folder import OtherProcess, RunFolder, require_own
from ssedb.runs.lock import only_run_of_this_process
from ssedb.runs.maps import MapLog
from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import Progress, silent
from ssedb.runs.signals import stop_requests
from ssedb.trainer import Trainer


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a run."""

    out: Path
    """The run's folder."""
    steps: int
    """Agent steps that the run has made, over all environments."""
    finished: bool
    """Whether the run has made all steps of its settings; False if a signal stopped it."""
    summary: dict[str, Any]
    """Scores, the last metrics, alarms, device and machine, as in `summary.json`."""


def train(config: TrainConfig, progress: Progress = silent) -> TrainResult:
    """Train from the beginning into `config.out`.

    Args:
        config: the settings.
        progress: the display; silent unless given.

    Raises:
        ConfigError: `config.out` holds a run or other files.
    """
    return (
        train_in(RunFolder.create(config), progress) if distributed.rank() == 0 else train_along()
    )


def resume(path: Path | str, progress: Progress = silent, **overrides: Any) -> TrainResult:
    """Continue a run from its newest checkpoint.

    Args:
        path: the run's folder.
        progress: the display; silent unless given.
        overrides: `steps`, `device` and others that do not make it another run.
    """
    if distributed.rank() > 0:
        return train_along()
    return train_in(RunFolder.reopen(Path(path), **overrides), progress)


def train_along() -> TrainResult:
    """Take part, under torchrun, in the run of the first process, which keeps the folder."""
    return train_in(OtherProcess())


def train_in(run: RunFolder, progress: Progress = silent) -> TrainResult:
    """Train in an open run folder until its steps are done, or a signal asks to stop."""
    trainer = None

    def when() -> str:
        return "before training" if trainer is None else f"at step {trainer.reached:,}"

    try:
        with (
            blaming(run.path, when, run.in_place, getattr(run, "config", None)),
            distributed.process_group() as group,
            only_run_of_this_process(),
        ):
            run.config = group.from_first(lambda: _with_threads(run.config))
            with _torch_settings(run.config, group), progress:
                trainer, resumed = _set_up(run, progress, group)
                return _train(trainer, run, resumed, progress, group)
    finally:
        try:
            if trainer is not None:
                trainer.close()
        finally:
            run.close()


def _train(
    trainer: Trainer,
    run: RunFolder,
    resumed: dict[str, int] | None,
    progress: Progress,
    group: Group,
) -> TrainResult:
    """Run Algorithm 1, an iteration at a time; log metrics, write checkpoints and the summary."""
    config = run.config
    done_before = trainer.steps >= config.steps
    if done_before:
        progress.note(f"nothing left to do at step {trainer.steps:,}; --steps makes the run longer")
    progress.start(trainer.steps, config)
    run.start_logging(resumed, progress.note)
    if trainer.updates == 0:  # whatever happens in the first update, the run can be resumed
        run.save_checkpoint(trainer.state_dict(), {"steps": 0, "updates": 0})
    reporter = _Reporter(run, trainer, progress)
    saved_at, stop = time.monotonic(), False
    with stop_on_signals(progress) as stopping:  # not earlier: there was nothing to save
        while trainer.steps < config.steps and not stop:
            reporter.add(trainer.iterate())
            counters = {"steps": trainer.steps, "updates": trainer.updates}
            due = group.any(time.monotonic() - saved_at >= 60 * config.checkpoint_minutes)
            stop = group.any(stopping())
            if due or trainer.steps >= config.steps or stop:
                reporter.add(trainer.finish())
                trainer.require_finite_weights()
                run.save_checkpoint(trainer.state_dict(), counters)
                saved_at = time.monotonic()
        finished = trainer.steps >= config.steps
        summary = {
            "finished": finished,
            **trainer.scores.summary(),
            "last": reporter.last,
            "alarms": reporter.watch.as_data(),
            "device": str(trainer.device),
            "machine": machine(trainer.device),
        }
        # A run may have been killed between its last checkpoint and its summary.
        if reporter.last and not (done_before and run.is_summarized(trainer.steps)):
            run.write_summary({"steps": trainer.steps, **summary})
    return TrainResult(config.out, trainer.steps, finished, summary)


class _Reporter:
    """Metrics of a run on their way to the folder and to the display, with alarms and maps.

    Attributes:
        last: the newest metrics, perhaps from before a resume; empty if there are none.
        watch: raises the alarms.
    """

    def __init__(self, run: RunFolder, trainer: Trainer, progress: Progress) -> None:
        rows = read_metrics(run.path)
        self.last = {key: value for key, value in rows[-1].items() if key != "time"} if rows else {}
        self.watch = Watch(rows)
        self._run = run
        self._progress = progress
        self._maps = MapLog(run.path, trainer)
        self._maps.record()

    def add(self, metrics: dict[str, Any] | None) -> None:
        """Log the metrics of an iteration, if there are any."""
        if metrics is None:
            return
        self.last = metrics
        settings = vars(self._run.config)
        for alarm in self.watch.see(metrics):
            self._progress.note(f"ALARM at step {metrics['steps']:,}: {alarm.text(settings)}")
        if self.watch.standing:
            metrics["alarms"] = self.watch.standing
        self._run.log(metrics)
        self._maps.record()
        self._progress.log(metrics)


@contextmanager
def _torch_settings(config: TrainConfig, group: Group) -> Iterator[None]:
    """Set torch's threads, device and kernels; restore threads, kernels and random states after."""
    device = pick_device(config.device)
    on_gpu = device.type == "cuda"
    threads = torch.get_num_threads()
    torch.set_num_threads(int(config.threads))
    try:
        if group.size > 1 and on_gpu:
            torch.cuda.set_device(device)
        kernels = deterministic_kernels() if config.deterministic else nullcontext()
        with kernels, torch.random.fork_rng([device] if on_gpu else []):
            yield
    finally:
        torch.set_num_threads(threads)


def _with_threads(config: TrainConfig) -> TrainConfig:
    """Fix the number of threads: sums are split by it, so the last digits depend on it."""
    if config.threads != "auto":
        return config
    return dataclasses.replace(config, threads=torch.get_num_threads())


def _set_up(
    run: RunFolder, progress: Progress, group: Group
) -> tuple[Trainer, dict[str, int] | None]:
    """Make a trainer, fresh or from the run's newest checkpoint; return it and its counters."""
    config = run.config
    shown: dict[str, Any] = dict(on_step=progress.step, on_minibatch=progress.train_step)
    saved = group.from_first(lambda: run.load_checkpoint(progress.note))
    if saved is None:
        seen = look_around(config, group, progress.look)
        trainer = Trainer(config, group=group, **shown)
        trainer.fit_observations(seen)
        if not (run.path / "metrics.jsonl").exists():
            return trainer, None
        progress.note("no checkpoint yet; the run begins again")
        return trainer, {"steps": 0, "updates": 0}
    state, about = saved
    require_own(run.path, about, config)
    # Environments that cannot be restored start new episodes; another seed keeps them from
    # replaying the first ones.
    trainer = Trainer(config, group=group, seed_key=2 + state["updates"], **shown)
    if trainer.env.on_host and trainer.collector.restorable:
        progress.phase("the emulators replay the actions of unfinished episodes")
    with checkpoint.must_fit(run.path):
        trainer.load_state_dict(state)
    progress.note(
        f"resumed at step {trainer.steps:,}"
        + ("" if trainer.collector.continued else "; episodes begin afresh")
    )
    return trainer, {"steps": trainer.steps, "updates": trainer.updates}


@contextmanager
def stop_on_signals(progress: Progress = silent) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells if a signal asked to stop; a second one stops at once."""
    asked = False

    def ask(again: bool) -> None:
        nonlocal asked
        if again:
            raise KeyboardInterrupt
        asked = True
        progress.interject("stopping after this update, with a checkpoint; once more stops at once")

    with stop_requests(ask):
        yield lambda: asked
