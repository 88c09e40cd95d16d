"""One stretch of experience, [T, N] on the learner's device. Every frame is kept once; stacks are made by indexing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from ssedb import parallel
from ssedb.engine import lasting
from ssedb.envs.base import Env, Step
from ssedb.normalize import Moments
from ssedb.parallel import Team, current
from ssedb.threads import patiently

STACK = 4
ALL = slice(None)


class Rollout:
    """T steps of N environments, kept from one update to the next so that stacks run on across its edge.

    Frame t + 3 is the newest of observation t, so T + 4 frames hold the observations 0 to T. `starts[t]` is the index of
    the first frame of the episode that observation t is in: older frames are not looked at, the first stands in for them.
    """

    def __init__(
        self,
        steps: int,
        num_envs: int,
        frame_shape: tuple[int, int],
        device: torch.device | str = "cpu",
    ) -> None:
        self.steps, self.num_envs, self.device = steps, num_envs, torch.device(device)
        self.frames = torch.zeros(
            steps + STACK, num_envs, *frame_shape, dtype=torch.uint8, device=device
        )
        self.starts = torch.zeros(steps + 1, num_envs, dtype=torch.int64, device=device)
        self.actions = torch.zeros(steps, num_envs, dtype=torch.int64, device=device)
        self.rewards = torch.zeros(steps, num_envs, device=device)
        self.dones = torch.zeros(steps, num_envs, dtype=torch.bool, device=device)
        self.log_probs = torch.zeros(steps, num_envs, device=device)
        self.values = torch.zeros(steps + 1, num_envs, device=device)
        self._all_envs = num_envs * current().size
        numbers = current().mine(torch.arange(self._all_envs, device=device))
        self.episodes = numbers.repeat(steps + 1, 1)  # a number for each episode
        self.states: Tensor | None = (
            None  # int64 [T, N], the true states acted in, where the world tells them
        )
        self.noise: Tensor | None = (
            None  # [T + 1, N, A], what actions are drawn with, where that is drawn beforehand
        )
        self._envs = torch.arange(num_envs, device=device)
        self._times = torch.arange(steps + 1, device=device)[:, None].repeat(1, num_envs)
        self._offsets = torch.arange(STACK, device=device)

    @property
    def obs_shape(self) -> tuple[int, int, int]:
        return (STACK, *self.frames.shape[2:])

    def begin(self, frames: Tensor) -> None:
        """Observation 0 is the first of an episode everywhere; until steps are played it is the last one, too."""
        for t in (0, self.steps):
            self.frames[t + STACK - 1] = frames
            self.starts[t] = t + STACK - 1

    def go_on_from(self, before: Rollout) -> None:
        """The last observation of a stretch (another one or this) becomes observation 0."""
        self.frames[:STACK] = before.frames[self.steps :].clone()
        self.starts[0] = (before.starts[self.steps] - self.steps).clamp_min(0)
        self.episodes[0] = before.episodes[self.steps]

    def acted(
        self, t: Tensor, envs: Tensor, actions: Tensor, log_probs: Tensor, values: Tensor
    ) -> None:
        """Files what was done on the observations at times t [B] of envs [B]."""
        self.actions[t, envs], self.log_probs[t, envs], self.values[t, envs] = (
            actions,
            log_probs,
            values,
        )

    def came(self, t: Tensor, envs: Tensor, frames: Tensor, rewards: Tensor, dones: Tensor) -> None:
        """Files what came of it."""
        self.rewards[t, envs], self.dones[t, envs] = rewards, dones
        self.frames[t + STACK, envs] = frames
        self.starts[t + 1, envs] = torch.where(dones, t + STACK, self.starts[t, envs])
        self.episodes[t + 1, envs] = self.episodes[t, envs] + self._all_envs * dones

    def take(self, step: Step) -> None:
        """For a rollout of one step: files what came of it and goes on from there."""
        self.came(*self.at(0), step.frames, step.rewards, step.dones)
        self.go_on_from(self)

    def whole(self, team: Team) -> Rollout:
        """The rollout of all processes, side by side."""
        if team.size == 1:
            return self
        whole = copy.copy(self)
        for name, value in vars(self).items():
            if (
                isinstance(value, Tensor) and value.ndim > 1 and name not in ("_times", "noise")
            ):  # [T, N, ...]
                setattr(whole, name, team.gather(value, 1))
        whole.num_envs = self._all_envs
        whole._envs = torch.arange(whole.num_envs, device=self.device)
        whole._times = self._times.repeat(1, team.size)
        return whole

    def stacks(self, t: Tensor, envs: Tensor) -> Tensor:
        """Observations uint8 [B, 4, H, W] at times t [B] of envs [B]."""
        index = torch.maximum(t[:, None] + self._offsets, self.starts[t, envs][:, None])  # [B, 4]
        rows = (index * self.num_envs + envs[:, None]).flatten()
        flat = self.frames.view(
            -1, self.frames[0, 0].numel()
        )  # [(T + 4) N, H W]: whole rows copy fast
        return flat.index_select(0, rows).view(len(t), *self.obs_shape)

    def obs(self, t: int) -> Tensor:
        """All environments' observations at time t."""
        return self.stacks(*self.at(t))

    def at(self, t: int, envs: slice = ALL) -> tuple[Tensor, Tensor]:
        """Indices (t, env) of all environments, or of some, at time t."""
        return self._times[t, envs], self._envs[envs]

    def minibatches(self, minibatch_envs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All steps of a few environments at a time, in random order: indices (t, env), each [T * minibatch_envs]."""
        order = torch.randperm(self.num_envs)
        if self.device.type == "cuda":
            order = order.pin_memory()  # so that nobody waits for it
        for envs in order.to(self.device, non_blocking=True).split(minibatch_envs):
            yield self.indices(envs)

    def groups(self, envs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same in order."""
        for some in self._envs.split(envs):
            yield self.indices(some)

    def indices(self, envs: Tensor) -> tuple[Tensor, Tensor]:
        times = torch.arange(self.steps, device=self.device)
        return times.repeat_interleave(len(envs)), envs.repeat(self.steps)

    def state_dict(self) -> dict[str, Any]:
        """The observation on which the next stretch begins."""
        last = {name: getattr(self, name)[self.steps].clone() for name in ("starts", "episodes")}
        return {"frames": self.frames[self.steps :].clone(), **last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        mine = current().mine
        self.frames[self.steps :] = mine(state["frames"], 1).to(self.device)
        self.starts[self.steps] = mine(state["starts"]).to(self.device)
        self.episodes[self.steps] = mine(state["episodes"]).to(self.device)


Act = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""Observations [N, 4, H, W] to actions, log-probabilities and values, each [N]. Where an environment plays in parts it is
given what to draw the actions with, too: [N, A] from the exponential distribution."""


class Player:
    """Plays an environment into rollouts. `ready` makes what happens on the device at each step ready for it."""

    def __init__(
        self,
        env: Env,
        act: Act,
        ready: Callable[[Any], Any] = lambda function: function,
        split: bool | None = None,
    ) -> None:
        self.env, self.act = env, act
        # While some parts of the environments step, a GPU chooses the actions of another. On a CPU the two would fight over
        # the cores, so there all take turns.
        parts = env.parts if split or (split is None and env.device.type == "cuda") else (env,)
        self.parts = [(part, slice(i, None, len(parts))) for i, part in enumerate(parts)]
        numbers = torch.arange(env.num_envs, device=env.device)
        self._envs = [lasting(numbers[envs]) for _, envs in self.parts]
        self._first, self._next, self._last = (
            ready(self._choose),
            ready(self._file_and_choose),
            ready(self._file_and_value),
        )

    def play(self, rollout: Rollout, on_step: Callable[[int], None] = lambda t: None) -> None:
        """T steps, going on from the observation the rollout begins with. `on_step` is told of each that all have made.

        Each part goes on as soon as it has answered: a game that begins anew keeps only its own part waiting. What actions
        are drawn with is drawn for the whole rollout at once, so that no number depends on who was first.
        """
        if len(self.parts) > 1:
            self._draw(rollout)
        answered: SimpleQueue[int] = SimpleQueue()
        times = [0] * len(self.parts)
        for number, (part, envs) in enumerate(self.parts):
            _note_states(rollout, 0, part, envs)
            part.send(
                self._first(*rollout.at(0, envs), rollout=rollout), partial(answered.put, number)
            )
        for t in range(1, rollout.steps + 1):
            while min(times) < t:
                number = patiently(lambda seconds: answered.get(timeout=seconds))
                times[number] += 1
                self._go_on(rollout, times[number], number, partial(answered.put, number))
            on_step(t - 1)

    def _go_on(self, rollout: Rollout, t: int, number: int, then: Callable[[], None]) -> None:
        """A part is at time t: what it has answered is filed, and its next actions are sent."""
        part, envs = self.parts[number]
        step = part.recv()
        answer = rollout.at(t, envs)[0], self._envs[number], step.frames, step.rewards, step.dones
        if t == rollout.steps:
            self._last(*answer, rollout=rollout)
            return
        _note_states(rollout, t, part, envs)
        part.send(self._next(*answer, rollout=rollout), then)

    def _draw(self, rollout: Rollout) -> None:
        if rollout.noise is None:
            rollout.noise = torch.empty(
                rollout.steps + 1, rollout.num_envs, self.env.num_actions, device=rollout.device
            )
        noise = rollout.noise
        noise.copy_(
            parallel.part(lambda shape: noise.new_empty(shape).exponential_(), noise.shape, dim=1)
        )

    def _act(self, t: Tensor, envs: Tensor, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        obs = rollout.stacks(t, envs)
        if len(self.parts) == 1:
            return self.act(obs)
        assert rollout.noise is not None
        return self.act(obs, rollout.noise[t, envs])

    def _choose(self, t: Tensor, envs: Tensor, rollout: Rollout) -> Tensor:
        actions, log_probs, values = self._act(t, envs, rollout)
        rollout.acted(t, envs, actions, log_probs, values)
        return actions

    def _file_and_choose(
        self,
        t: Tensor,
        envs: Tensor,
        frames: Tensor,
        rewards: Tensor,
        dones: Tensor,
        rollout: Rollout,
    ) -> Tensor:
        rollout.came(t - 1, envs, frames, rewards, dones)
        return self._choose(t, envs, rollout)

    def _file_and_value(
        self,
        t: Tensor,
        envs: Tensor,
        frames: Tensor,
        rewards: Tensor,
        dones: Tensor,
        rollout: Rollout,
    ) -> None:
        rollout.came(t - 1, envs, frames, rewards, dones)
        rollout.values[t, envs] = self._act(t, envs, rollout)[2]


def _note_states(rollout: Rollout, t: int, part: Env, envs: slice) -> None:
    if rollout.states is not None and (states := part.true_states()) is not None:
        rollout.states[t, envs] = states


def random_agent_statistics(env: Env, steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """Mean picture [4, H, W] and ONE std (the mean of the pixels' stds) of what a uniform random agent sees."""
    generator = torch.Generator().manual_seed(seed)
    frames = env.reset()
    env.stagger()
    rollout = Rollout(1, env.num_envs, (frames.shape[1], frames.shape[2]), env.device)
    rollout.begin(frames)
    moments = Moments(rollout.obs_shape, env.device)
    for _ in range(-(-steps // env.num_envs)):
        moments.add(rollout.obs(0))
        actions = torch.randint(env.num_actions, (env.num_envs,), generator=generator).to(
            env.device
        )
        rollout.take(env.step(actions))
    return moments.mean.float(), moments.variance.sqrt().mean().clamp_min(1e-3).float()
