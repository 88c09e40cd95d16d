"""Copies of a Gymnasium environment, stepped in this process or in others with the same frames."""

from __future__ import annotations

import ctypes
import gc
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
import torch

from ssedb.envs import timeout
from ssedb.envs.timeout import wait_for
from ssedb.errors import Blamed, TrainingError, methods_of

PR_SET_PDEATHSIG = 1  # of Linux's prctl
NOT_MADE = "the making of {} has not ended"
Make = Callable[[], "gymnasium.Env[Any, Any]"]
Answer = tuple[np.ndarray, np.ndarray, dict[int, np.ndarray]]
"""Rewards float32 [N], dones bool [N], and the last frames of ended episodes by environment."""


class Copies:
    """N environments stepped one after the other, with SAME_STEP autoreset.

    Attributes:
        frames: the newest frames, [N, ...]: uint8 images or float32 vectors.
    """

    def __init__(self, make: Make, frames: np.ndarray) -> None:
        self.frames = frames
        self._envs = [make() for _ in frames]

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin an episode everywhere, with a seed for each environment."""
        for i, (env, seed) in enumerate(zip(self._envs, seeds, strict=True)):
            self.frames[i] = env.reset(seed=seed)[0]

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions, [N, *shape of one action], for `recv`."""
        self._actions = actions

    def recv(self) -> Answer:
        """Step everywhere."""
        rewards, dones = np.zeros(len(self._envs), np.float32), np.zeros(len(self._envs), bool)
        last: dict[int, np.ndarray] = {}
        for i, (env, action) in enumerate(zip(self._envs, self._actions, strict=True)):
            frame, reward, terminated, truncated, _ = env.step(action)
            rewards[i] = finite_reward(env, reward)
            if terminated or truncated:
                dones[i], last[i] = True, np.array(frame, self.frames.dtype)
                frame = env.reset()[0]
            self.frames[i] = frame
        return rewards, dones, last

    def close(self) -> None:
        """Close all, whatever one of them raises: it would hide the error that ended the run."""
        for env in self._envs:
            with suppress(Exception, SystemExit):
                env.close()


def finite_reward(env: gymnasium.Env[Any, Any], reward: Any) -> float:
    """Return a reward; raise Blamed if it is no finite number."""
    try:
        number = float(reward)
    except (TypeError, ValueError):
        number = math.nan
    if math.isfinite(number):
        return number
    message = f"{type(env.unwrapped).__name__}.step gave the reward {reward!r}, no finite number"
    raise Blamed(message, "".join(traceback.format_stack()))


class CalledCopies:
    """Copies in this process, called on a thread of their own: whoever waits can give them up."""

    def __init__(self, make: Make, frames: np.ndarray, caller: timeout.Caller) -> None:
        self.frames = frames
        self._caller = caller
        what = NOT_MADE.format("the environments")
        limit = timeout.CONSTRUCTION_TIME_OUT
        self._copies = caller.call(lambda: Copies(make, frames), what, limit)

    def reset(self, seeds: Sequence[int]) -> None:
        self._caller.call(partial(self._copies.reset, seeds))

    def send(self, actions: np.ndarray) -> None:
        self._copies.send(actions)

    def recv(self) -> Answer:
        return self._caller.call(self._copies.recv)

    def close(self) -> None:
        """Close the environments; leave those that are stuck."""
        self._caller.release(self._copies.close)
        self._caller.close()


def _answer(pipe: Connection, seconds: float) -> Any:
    if not pipe.poll(seconds):
        raise TimeoutError
    return pipe.recv()


def _in_time(pipe: Connection, process: Any) -> Any:
    """Wait for a step or a reset, which has a time-out."""
    return wait_for(partial(_answer, pipe))


def _when_made(pipe: Connection, process: Any) -> Any:
    """Wait until a process has made its environments; raise EOFError if the process has died."""
    limit = time.monotonic() + timeout.CONSTRUCTION_TIME_OUT
    while not pipe.poll(1):
        if not process.is_alive() and not pipe.poll():
            raise EOFError
        if time.monotonic() > limit:
            what = NOT_MADE.format("a process's environments")
            raise TrainingError(f"{what} for {timeout.CONSTRUCTION_TIME_OUT:g} s")
    return pipe.recv()


class Workers:
    """N environments in several processes, which step their shares in parallel; see `Copies`."""

    def __init__(self, make: Make, shape: tuple[int, ...], kind: np.dtype, workers: int) -> None:
        # Forked processes know every environment registered here, and do not run the user's script
        # again.
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        memory = context.RawArray("B", int(np.prod(shape)) * kind.itemsize)
        self.frames = np.frombuffer(memory, kind).reshape(shape)
        self._shares = [slice(i, None, workers) for i in range(workers)]
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # Ends the processes also if nobody calls close, as when making the trainer fails.
        self._end = weakref.finalize(self, _end_all, os.getpid(), self._pipes, self._processes)
        main_thread = threading.current_thread() is threading.main_thread()
        try:
            for share in self._shares:
                ours, theirs = context.Pipe()
                work = theirs, make, memory, shape, kind, share, os.getpid(), main_thread
                process = context.Process(target=_serve, args=work, daemon=True)
                self._pipes.append(ours)
                self._processes.append(process)
                process.start()
                theirs.close()
            self._answers(_when_made)
        except OSError as error:
            self.close()
            raise TrainingError(
                f"cannot start a process that steps environments: {error.strerror or error}; "
                "end other processes, or take --env-workers 0",
                may_pass=True,
            ) from None
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int]) -> None:
        for pipe, share in zip(self._pipes, self._shares, strict=True):
            _tell(pipe, ("reset", seeds[share]))
        self._answers()

    def send(self, actions: np.ndarray) -> None:
        for pipe, share in zip(self._pipes, self._shares, strict=True):
            _tell(pipe, ("step", actions[share]))

    def recv(self) -> Answer:
        """Wait for the answers; raise TrainingError after the time-out or if a process has died."""
        rewards, dones = np.zeros(len(self.frames), np.float32), np.zeros(len(self.frames), bool)
        last: dict[int, np.ndarray] = {}
        for number, answer in enumerate(self._answers()):
            share = self._shares[number]
            rewards[share], dones[share] = answer[:2]
            last |= {number + i * len(self._shares): frame for i, frame in answer[2].items()}
        return rewards, dones, last

    def close(self) -> None:
        """End the processes; one that is stuck is killed."""
        self._end()

    def _answers(self, wait: Callable[[Connection, Any], Any] = _in_time) -> list[Any]:
        """Wait for an answer of each process; raise the error that one has sent instead."""
        answers = []
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            try:
                answers.append(wait(pipe, process))
            except (EOFError, OSError):
                process.join(1)
                raise TrainingError(
                    f"a process that steps environments has died (exit code {process.exitcode}); "
                    "--env-workers 0 steps them in the learner's own",
                    may_pass=True,
                ) from None
        for found in answers:
            if isinstance(found, Blamed):
                raise found
        return answers


def _tell(pipe: Connection, order: Any) -> None:
    with suppress(OSError):  # a process that died is reported when its answer is read
        pipe.send(order)


def _end_all(owner: int, pipes: list[Connection], processes: list[Any]) -> None:
    if os.getpid() != owner:  # a forked copy does not own the processes
        return
    started = [process for process in processes if process.pid is not None]
    try:
        for pipe in pipes:
            _tell(pipe, None)
        limit = time.monotonic() + 2
        for process in started:
            process.join(max(0.0, limit - time.monotonic()))
    finally:  # Ctrl-C may end the wait; Python would wait for the others at its exit, for ever
        for process in started:
            process.kill()
        for process in started:
            process.join()
        for pipe in pipes:
            pipe.close()


def _ignore(number: int, frame: Any) -> None:
    """Leave a signal to the learner's process."""


def _serve(
    pipe: Connection,
    make: Make,
    memory: Any,
    shape: tuple[int, ...],
    kind: np.dtype,
    share: slice,
    learner: int,
    main_thread: bool,
) -> None:
    """Step a share of the environments, until the learner's process sends None or is gone."""
    # A fork inherits OpenMP's pool without its threads, and would wait for them for ever.
    torch.set_num_threads(1)
    gc.freeze()  # garbage of the learner is not freed here: CUDA objects cannot be, after a fork
    # A terminal sends Ctrl-C, and a scheduler SIGTERM, to all processes. Both are for the learner,
    # which needs its environments to end the rollout before it stops. A function, because
    # programs that an environment starts would inherit SIG_IGN.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)
    if main_thread:
        _die_with_parent()
    threading.Thread(target=_end_with, args=(learner,), daemon=True).start()
    envs = None
    try:
        envs = Copies(make, np.frombuffer(memory, kind).reshape(shape)[share])
        pipe.send(None)  # the environments are made
        while (order := pipe.recv()) is not None:
            if order[0] == "reset":
                envs.reset(order[1])
                pipe.send(None)
            else:
                envs.send(order[1])
                pipe.send(envs.recv())
    except (EOFError, BrokenPipeError):
        pass
    except Blamed as error:
        pipe.send(error)
    except (Exception, SystemExit) as error:
        pipe.send(environment_blamed(error) or Blamed.of("an environment", error))
    finally:
        if envs is not None:
            envs.close()


def environment_blamed(error: BaseException) -> Blamed | None:
    """Find the environment whose code raised an error; None if there is none."""
    owner = None
    for candidate, method in methods_of(error):
        # The innermost environment, not Gymnasium's wrappers around it.
        if isinstance(candidate, gymnasium.Env):
            wrapped = type(candidate).__module__.startswith("gymnasium.")
            owner = f"{type(candidate.unwrapped if wrapped else candidate).__name__}.{method}"
    return None if owner is None else Blamed.of(owner, error)


def _die_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends.

    That reaches a process which is stopped, where `_end_with` does not run. Only the main thread
    lasts as long as its process.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library without it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """End this process when the learner's has died, even if an environment is stuck."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
