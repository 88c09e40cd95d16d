"""Any Gymnasium environment that observes images or vectors."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import Tensor

from ssedb.actions import Box, action_space
from ssedb.envs import timeout
from ssedb.envs.base import Env, Step
from ssedb.envs.names import bare_id, gymnasium_id
from ssedb.envs.seen import Seen
from ssedb.envs.workers import NOT_MADE, CalledCopies, Workers
from ssedb.errors import ConfigError, TrainingError, one_line

RENDER = "render"
"""The `obs_key` of an agent that sees what the environment draws."""
TIMED_STEPS, TIMED_SECONDS = 20, 0.5
"""Steps that are timed to decide on worker processes, and seconds after which timing stops."""
ROUND_TRIP = 5e-4
"""Seconds that processes must save in a step of all environments to be worth it."""


@dataclass(frozen=True)
class Maker:
    """Function that makes one environment, here or in another process."""

    env_id: str  # Id, or module:Id
    kwargs: Mapping[str, Any]
    max_steps: int | None

    def __call__(self) -> Seen:
        gymnasium_id(self.env_id)  # imports the module, also in a process that was not forked
        own = gymnasium.spec(bare_id(self.env_id)).max_episode_steps  # never lengthened
        limits = [steps for steps in (own, self.max_steps) if steps is not None]
        limit: dict[str, Any] = {"max_episode_steps": min(limits)} if limits else {}
        kwargs = dict(self.kwargs)
        key = kwargs.pop("obs_key", "")
        if key == RENDER:
            kwargs["render_mode"] = "rgb_array"
        env: gymnasium.Env[Any, Any] = gymnasium.make(self.env_id, **limit, **kwargs)
        if key == RENDER:
            env, key = gymnasium.wrappers.AddRenderObservation(env, render_only=True), ""
        return Seen(env, key)


class GymnasiumEnv(Env):
    """N copies of a Gymnasium environment, stepped in this process or in several others."""

    on_host = True

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        max_steps: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        workers: int | Literal["auto"] = "auto",
    ) -> None:
        make = Maker(env_id, kwargs or {}, max_steps)
        caller = timeout.Caller()
        first = _make_first(make, caller)
        try:
            self._space = action_space(first.action_space)
            most = min(num_envs, torch.get_num_threads())  # another thread has a number of its own
            self.workers = (
                caller.call(partial(workers_worth, first, num_envs, most))
                if workers == "auto"
                else min(workers, num_envs)
            )
        except ConfigError as error:
            raise ConfigError(f"{env_id!r}: {error}") from None
        finally:
            caller.release(first.close)
        self.num_envs = num_envs
        discrete = isinstance(first.action_space, gymnasium.spaces.Discrete)
        self.num_actions = self._space.width if discrete else self._space
        self.vectors = first.vectors
        self.device = torch.device(device)
        self._first_action = getattr(first.action_space, "start", 0)
        self._action_space: Any = first.action_space
        rng = np.random.default_rng(seed)
        self._seeds: list[int] = rng.integers(0, 2**31 - 1, num_envs).tolist()
        shape = (num_envs, *first.shape)
        self._envs = (
            Workers(make, shape, first.dtype, self.workers)
            if self.workers
            else CalledCopies(make, np.zeros(shape, first.dtype), caller)
        )

    def reset(self) -> Tensor:
        self._envs.reset(self._seeds)
        return self._frames(self._envs.frames)

    def step(self, actions: Tensor) -> Step:
        self._envs.send(self._executable(actions))
        rewards, dones, last = self._envs.recv()
        final = None
        if last:
            frames = self._envs.frames.copy()
            for i, frame in last.items():
                frames[i] = frame
            final = lambda: self._frames(frames)  # noqa: E731
        return Step(
            self._frames(self._envs.frames),
            torch.as_tensor(rewards, device=self.device),
            torch.as_tensor(dones, device=self.device),
            final,
        )

    def _executable(self, actions: Tensor) -> np.ndarray:
        """Return actions as the environments take them: in their shape, dtype and bounds."""
        if not isinstance(self._space, Box):
            return actions.cpu().numpy() + self._first_action
        box = self._action_space
        # In the dtype of the box: 0.1 as float32 lies beyond 0.1 as float64.
        own = actions.cpu().numpy().astype(box.dtype).reshape(-1, *box.shape)
        return own.clip(box.low, box.high)

    def _frames(self, frames: np.ndarray) -> Tensor:
        if frames.ndim == 4 and frames.shape[-1] == 1:
            frames = frames[..., 0]
        # A copy: the next step writes to the same memory.
        return torch.tensor(frames, device=self.device)

    def close(self) -> None:
        self._envs.close()


def _make_first(make: Maker, caller: timeout.Caller) -> Seen:
    """Make a copy that shows what the environment is; raise ConfigError if none can be made."""
    env_id = make.env_id
    try:
        return caller.call(make, NOT_MADE.format(env_id), timeout.CONSTRUCTION_TIME_OUT)
    except TrainingError:
        raise
    except ConfigError as error:  # of what is seen
        raise ConfigError(f"{env_id!r}: {error}") from None
    except (Exception, SystemExit) as error:  # an environment may raise what it likes
        given, other = "see --env-kwargs for what it is made with", "see what its package asks for"
        remedy = given if make.kwargs else other
        raise ConfigError(
            f"Gymnasium cannot make {env_id!r}: {one_line(error)}; {remedy}"
        ) from None


def workers_worth(env: gymnasium.Env[Any, Any], num_envs: int, most: int) -> int:
    """Time steps; return how many processes, `most` at most, step copies faster than one, or 0.

    On Linux only, where processes can be forked: elsewhere each would run the user's script again.
    """
    if most < 2 or sys.platform != "linux":
        return 0
    saved = seconds_per_step(env) * (num_envs - math.ceil(num_envs / most))
    return most if saved > ROUND_TRIP else 0


def seconds_per_step(env: gymnasium.Env[Any, Any]) -> float:
    """Return the median time of a few random steps."""
    env.action_space.seed(0)
    env.reset(seed=0)
    began = time.perf_counter()
    times: list[float] = []
    while len(times) < TIMED_STEPS and (not times or time.perf_counter() - began < TIMED_SECONDS):
        before = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        times.append(time.perf_counter() - before)
        if terminated or truncated:
            env.reset()
    return statistics.median(times)
