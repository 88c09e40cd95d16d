"""A plan on this machine: worker processes, as many as cores and measured memory allow.

A crash or an out-of-memory kill takes one worker and its run; another worker resumes the run from
its checkpoint. Workers end by themselves when the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from ssedb.runs.signals import stop_requests
from ssedb.sweep.deadline import Deadline, Pace
from ssedb.sweep.display import Display
from ssedb.sweep.grid import Planned
from ssedb.sweep.limit import JobLimit
from ssedb.sweep.worker import GRACE, MemoryUse, cores, work
from ssedb.terminal import plural

STOPPING = "stopping: every run ends with its update and saves; once more stops at once"
SIGNALLED = "a signal that the sweep did not send stopped it"
"""Error of a run whose own process was asked to stop, while the sweep goes on."""


@dataclass(frozen=True)
class Execution:
    """Settings of a sweep: where its runs are done, how many at a time, and for how long."""

    probe: bool = False
    """Whether each run is probed at its end."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: int = 1
    """Threads of each run."""
    retries: int = 1
    """How often a run whose process died is tried again."""
    jobs: int | None = None
    """Runs at a time; by cores and measured memory unless given."""
    minutes: float | None = None
    """Time after which every run saves and stops."""
    whole: bool = False
    """Whether only runs begin that would finish within `minutes`."""
    ray: str | None = None
    """Where to run instead of this machine: auto, local (Ray starts here) or ray://HOST:PORT."""
    cpus: float = 1
    """On Ray, CPUs of a run."""
    gpus: float | None = None
    """On Ray, GPUs of a run; 0.25 unless given where the cluster has GPUs."""


@dataclass
class Outcome:
    """Outcome of a sweep."""

    finished: list[Planned] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Name of the run to the error's one line."""
    stopped: bool = False
    unfinished: int = 0
    """Runs of the grid that are not finished, for whatever reason."""


@dataclass
class Worker:
    """A process, the pipe to it, and the run it has."""

    process: Any
    pipe: Connection
    run: Planned | None = None
    pace: Pace | None = None
    """Progress of that run, or of the one before."""
    asked: bool = False
    """Whether it was asked to save its run and stop."""
    ending: bool = False
    """Whether it takes no more runs: it was stopped, or it has run out of memory."""

    @property
    def idle(self) -> bool:
        """Whether it waits for a run."""
        return self.run is None and not self.ending

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is still there."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(self.process.pid, number)


def run_here(runs: list[Planned], display: Display, how: Execution) -> Outcome:
    """Run everything, several at a time; a signal lets every run save and ends the sweep."""
    scheduler = Scheduler(runs, display, how)

    def ask(again: bool) -> None:
        if again:
            scheduler.kill()
            return
        display.interject(STOPPING)
        scheduler.outcome.stopped = True

    with stop_requests(ask):
        try:
            while scheduler.poll():
                if scheduler.deadline.over and not scheduler.outcome.stopped:
                    display.note(f"{how.minutes:g} minutes are over; every run saves and stops")
                    scheduler.outcome.stopped = True
            if scheduler.waiting and not scheduler.outcome.stopped:
                late = plural(len(scheduler.waiting), "run")
                display.note(f"not begun, too late to finish in {how.minutes:g} minutes: {late}")
        finally:
            scheduler.close()
    return scheduler.outcome


class Scheduler:
    """Dispatcher of runs to workers, which receives their messages and replaces those that die."""

    def __init__(self, runs: list[Planned], display: Display, how: Execution) -> None:
        self.waiting, self.outcome = deque(runs), Outcome()
        self._display, self._how = display, how
        self.deadline = Deadline(how.minutes, how.whole)
        self.limit = JobLimit(how.jobs, cores(), len(runs))
        self._attempts: dict[str, int] = {}
        self._workers: list[Worker] = []
        self._made = 0
        self._context = multiprocessing.get_context("spawn")

    def poll(self) -> bool:
        """Dispatch what may run and receive what was sent; return False when nothing is left."""
        self._dispatch()
        if self.outcome.stopped:
            self._ask_to_stop()
        busy = [worker for worker in self._workers if worker.run is not None]
        if not busy:
            return False
        ready = wait([worker.pipe for worker in self._workers], timeout=0.5)
        for worker in [w for w in self._workers if w.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):  # OSError: it died in the middle of a message
                self._reap(worker)
            else:
                self._receive(worker, message)
        self._display.update()
        return True

    def kill(self) -> None:
        """Kill every worker: its run goes on from the last checkpoint another time."""
        for worker in self._workers:
            worker.send(signal.SIGKILL)

    def _ask_to_stop(self) -> None:
        """Ask every run, once, to save and stop."""
        for worker in self._workers:
            if worker.run is not None and not worker.asked:
                worker.asked = True
                worker.send(signal.SIGTERM)

    def close(self) -> None:
        """Let the workers end, and kill those that do not."""
        for worker in self._workers:
            worker.pipe.close()
        limit = time.monotonic() + GRACE
        for worker in self._workers:
            worker.process.join(max(0.1, limit - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def _dispatch(self) -> None:
        running = sum(worker.run is not None for worker in self._workers)
        while not self.outcome.stopped and running < self.limit.now and (run := self._next()):
            idle = next((worker for worker in self._workers if worker.idle), None)
            worker = idle or self._start_worker()
            self.waiting.remove(run)
            try:
                worker.pipe.send((run, self._how.probe))
            except (OSError, ValueError):  # it died while it had nothing to do
                self.waiting.appendleft(run)
                self._reap(worker)
                continue
            worker.run, worker.pace = run, Pace(_kind(run), run.config.steps)
            self._attempts[run.id] = self._attempts.get(run.id, 0) + 1
            self._display.started(run)
            running += 1

    def _next(self) -> Planned | None:
        """Return the first waiting run that would finish in time."""
        under_way = self._paces()
        allows = functools.cache(lambda kind, steps: self.deadline.allows(kind, steps, under_way))
        return next((run for run in self.waiting if allows(_kind(run), run.config.steps)), None)

    def _paces(self) -> list[Pace]:
        """Return the paces of the runs under way."""
        return [worker.pace for worker in self._workers if worker.run and worker.pace]

    def _start_worker(self) -> Worker:
        ours, theirs = self._context.Pipe()
        how = self._how
        arguments = (theirs, self._made, how.device, how.threads, self.limit.most == 1)
        process = self._context.Process(target=work, args=arguments, name=f"sweep-{self._made}")
        self._made += 1
        # Ctrl-C reaches the whole terminal: the worker inherits the mask, and ignores what came.
        resource_tracker.ensure_running()  # its first start would lift the mask
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        worker = Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _receive(self, worker: Worker, message: tuple[Any, ...]) -> None:
        kind, run, pace = message[0], worker.run, worker.pace
        assert run is not None
        assert pace is not None
        if kind == "steps":
            pace.note(message[1], sum(other.first is not None for other in self._paces()))
            self._display.stepped(run.id, message[1])
        elif kind == "alarm":
            self._display.note(f"{run.name}: {message[1]}")
        elif kind == "memory":
            self._fit(message[1])
        elif kind == "finished":
            worker.run = None
            self.deadline.measure(pace)
            self.outcome.finished.append(run)
            self._display.ended(run, "finished")
        elif kind == "stopped":
            worker.run, worker.ending = None, True
            if self.outcome.stopped:
                self._display.ended(run, "stopped")
            else:
                self._failed(run, SIGNALLED, True)
        elif kind == "failed":
            worker.run = None
            _, error, again = message
            worker.ending = "out of memory" in error
            self._failed(run, error, again)

    def _fit(self, memory: MemoryUse) -> None:
        self.deadline.shared = memory.gpus > 0
        if need := self.limit.fit(memory):
            threads = plural(self._how.threads, "thread")
            self._display.note(f"a run needs {need}: {self.limit.now} at a time, {threads} each")

    def _reap(self, worker: Worker) -> None:
        """Clear away a worker that is gone; its run goes on in another, from its checkpoint."""
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join(GRACE)
        code, run = worker.process.exitcode, worker.run
        if run is None:
            return
        if self.outcome.stopped:
            self._display.ended(run, "stopped")
            return
        why = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._failed(
            run,
            f"its process died ({why}"
            + (", perhaps out of memory)" if code == -signal.SIGKILL else ")"),
            True,
        )

    def _failed(self, run: Planned, error: str, again: bool) -> None:
        from ssedb.sweep.execute import write_failure

        attempts = self._attempts[run.id]
        if "out of memory" in error:
            self.limit.lower()
        if again and attempts <= self._how.retries:
            self._display.ended(run, "again")
            self._display.note(f"{run.name}: {error}; taken up again")
            self.waiting.append(run)
            return
        write_failure(run, error, attempts)
        self.outcome.failed[run.name] = error
        self._display.ended(run, "failed", error)


def _kind(run: Planned) -> tuple[str, str]:
    """Return what runs of about the same speed share."""
    return run.config.env, run.config.bonus
