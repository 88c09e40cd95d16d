"""A plan on a Ray cluster: each run is a task with its share of the machines.

Ray starts a task anew whose worker or node dies. The run's folder, which all machines must share,
holds its checkpoint, from which it goes on, and its lock, which a second worker waits for. A
driver that dies is simply started again. To a task that runs, ray.cancel without force is a Ctrl-C,
upon which a run saves and stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ssedb.errors import ConfigError, TrainingError
from ssedb.runs.folder import SWEEP_LOG
from ssedb.runs.signals import ending_signals, handled, stop_requests
from ssedb.sweep.display import Display
from ssedb.sweep.execute import Steps, describe, execute, may_succeed_on_retry, write_failure
from ssedb.sweep.grid import Planned
from ssedb.sweep.scheduler import SIGNALLED, STOPPING, Execution, Outcome
from ssedb.sweep.worker import output_to

POLL = 1.0  # seconds
DEFAULT_GPUS = 0.25


def run_on_ray(runs: list[Planned], display: Display, how: Execution, **local: Any) -> Outcome:
    """Run everything as Ray tasks; `local` are settings of a Ray that starts here."""
    with connected(how.ray or "auto", **local) as ray:
        gpus = how.gpus
        if gpus is None:
            has_gpus = how.device != "cpu" and ray.cluster_resources().get("GPU")
            gpus = DEFAULT_GPUS if has_gpus else 0
        board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        again: dict[str, Any] = dict(max_retries=how.retries, retry_exceptions=[TrainingError])
        task = ray.remote(num_cpus=how.cpus, num_gpus=gpus, **again)(run_task)
        given = (how.probe, how.device, how.threads, how.retries, board)
        waiting = {task.remote(_with_absolute_path(run), *given): run for run in runs}
        return _watch(ray, waiting, board, display, how.retries)


@contextlib.contextmanager
def connected(address: str, **local: Any) -> Iterator[Any]:
    """Connect to Ray, which is begun and ended here unless somebody has begun it."""
    ray: Any = import_module("ray")  # its own types are partial
    if ray.is_initialized():
        yield ray
        return
    endings = ending_signals()
    as_ctrl_c = functools.partial(handled, signal.default_int_handler, *endings)
    with as_ctrl_c():
        try:
            _begin(ray, address, local)
            with as_ctrl_c():  # Ray has installed a handler of its own for SIGTERM
                yield ray
        finally:
            if ray.is_initialized():
                with handled(signal.SIG_IGN, *endings):  # else its processes would stay
                    ray.shutdown()


def _begin(ray: Any, address: str, local: dict[str, Any]) -> None:
    # Processes of a Ray that starts here inherit the mask: a closing terminal must not end them
    # before the runs save. And Ray leaves some behind that is interrupted as it starts.
    deferred = [signal.SIGINT, signal.SIGHUP] if address == "local" else []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, deferred)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray has errors of many kinds for it
        said = " ".join(str(error).split()).rstrip(".")
        remedy = "start one with `ray start --head`, or use --ray local"
        if "uthenti" in f"{said} {error.__cause__}":  # Ray may name it only in the cause
            said = said.partition(". ")[0]  # the other sentences would hide the remedy
            remedy = "every machine needs the cluster's token: docs/sweeps.md says how"
        raise ConfigError(f"no Ray at {address!r}: {said}; {remedy}") from None
    except SystemExit:  # SIGTERM, by Ray's handler
        raise KeyboardInterrupt from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(
    ray: Any, waiting: dict[Any, Planned], board: Any, display: Display, retries: int
) -> Outcome:
    outcome, alarms = Outcome(), set()
    begun: dict[str, int] = {}
    by_id = {run.id: run for run in waiting.values()}
    requests = heard = 0

    def ask(again: bool) -> None:
        nonlocal requests
        requests += 1
        if not again:
            display.interject(STOPPING)

    with stop_requests(ask):
        while waiting and heard < 2:
            ended, _ = ray.wait(list(waiting), timeout=POLL)
            for (name, kind), value in _read(ray, board).items():
                if kind == "begun":
                    if value > begun.get(name, 1):
                        display.note(f"{by_id[name].name}: taken up again by Ray")
                    if value != begun.get(name):
                        display.started(by_id[name])
                    begun[name] = value
                elif kind == "steps":
                    display.stepped(name, value)
                elif (name, value) not in alarms:
                    alarms.add((name, value))
                    display.note(f"{by_id[name].name}: {value}")
            for reference in ended:
                run = waiting.pop(reference)
                try:
                    error = ray.get(reference)
                except ray.exceptions.RayError as lost:
                    if requests:
                        display.ended(run, "stopped")
                        continue
                    # Its worker died, or was stopped, more often than it may.
                    error = " ".join(str(getattr(lost, "cause", lost)).split())[:300]
                    write_failure(run, error, retries + 1)
                if error is None:
                    outcome.finished.append(run)
                    display.ended(run, "finished")
                else:
                    outcome.failed[run.name] = error
                    display.ended(run, "failed", error)
            display.update()
            if requests > heard:
                heard = requests
                for reference in waiting:
                    with contextlib.suppress(Exception):
                        ray.cancel(reference, force=requests > 1, recursive=False)
    outcome.stopped = requests > 0
    return outcome


class Board:
    """Actor to which the tasks tell when they begin and how far they are."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], Any] = {}

    def begin(self, name: str) -> None:
        """Count how often a run has begun."""
        self._told[name, "begun"] = self._told.get((name, "begun"), 0) + 1

    def write(self, name: str, kind: str, value: Any) -> None:
        """Note the newest of what a run tells: its steps, or an alarm."""
        self._told[name, kind] = value

    def read(self) -> dict[tuple[str, str], Any]:
        """Return the newest of every run."""
        return self._told


def _read(ray: Any, board: Any) -> dict[tuple[str, str], Any]:
    try:
        return ray.get(board.read.remote(), timeout=10 * POLL)
    except ray.exceptions.RayError:  # its node died and Ray makes another; runs do not wait
        return {}


def _with_absolute_path(run: Planned) -> Planned:
    """Return the run with a path that means the same in any process."""
    return dataclasses.replace(
        run, config=dataclasses.replace(run.config, out=Path(os.path.abspath(run.folder)))
    )


def run_task(
    run: Planned, probe: bool, device: str, threads: int, retries: int, board: Any
) -> str | None:
    """Execute one run, whose path is absolute, where Ray put it.

    After an error that may pass it is tried again. `board` is Ray's handle of the `Board`.

    Returns:
        None if the run is finished, else the error in one line.

    Raises:
        TrainingError: a signal stopped the run, with all saved.
    """
    import torch

    from ssedb.engine.host import sleep_while_waiting

    if device != "cpu":  # other tasks may share its GPU
        sleep_while_waiting()
    torch.set_num_threads(threads)
    board.begin.remote(run.id)
    tell = Steps(lambda kind, value: board.write.remote(run.id, kind, value))
    attempts, again = 0, True
    while again:
        attempts += 1
        try:
            with output_to(run.folder / SWEEP_LOG):
                finished = execute(run, probe, device, tell)
        except Exception as error:
            said = describe(error)
            again = attempts <= retries and may_succeed_on_retry(error)
        else:
            if not finished:
                raise TrainingError(SIGNALLED)  # Ray takes it up again unless it is cancelled
            return None
    write_failure(run, said, attempts)
    return said
