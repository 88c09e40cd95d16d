"""The plain collector: all environments step together, and the policy acts on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ssedb.actions import action_space
from ssedb.collect.memory import require_memory
from ssedb.collect.rollout import Rollout
from ssedb.engine.base import Engine
from ssedb.envs.base import Env
from ssedb.errors import ConfigError

Act = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""Observations [N, ...] to actions [N, ...], log-probabilities [N] and values [N]. Optional second
argument: the random draws, [N, width], of `ActionSpace.fill`."""


class Collector:
    """Environments of a run, and the rollouts collected in them.

    Attributes:
        env: the environments; the first pool of several, which are all of one kind.
        rollout: the last rollout; of all processes, if several share the run.
        continued: whether the episodes of the last checkpoint that was loaded go on.
    """

    continued = False

    def __init__(
        self,
        env: Env,
        steps: int,
        engine: Engine | None = None,
        on_step: Callable[[int], None] = lambda t: None,
    ) -> None:
        """Begin episodes everywhere.

        Args:
            env: the environments to step.
            steps: length of a rollout.
            engine: what runs the policy; the plain engine unless given.
            on_step: called with t after every step.
        """
        self.env = env
        self.engine = engine or Engine(env.device)
        self._on_step = on_step
        self._begin(self._reset(), steps)
        wrap = self.engine.wrap
        # One graph for all that happens in a step, or one before and one after the environments.
        self._whole_step = wrap(self._act_and_step, generators=env.generators)
        self._act_step = wrap(self._act)
        self._store_step = wrap(self._store)
        self._value_step = wrap(self._store_values)

    def _reset(self) -> Tensor:
        frames = self.env.reset()
        self.env.stagger()
        return frames

    def _begin(self, frames: Tensor, steps: int) -> None:
        """Allocate storage: a second rollout where the last is used while the next is collected.

        Raises:
            ConfigError: if the storage does not fit in the device's memory.
        """
        engine = self.engine
        shape, process = tuple(frames.shape[1:]), (engine.group.rank, engine.group.size)
        count = 2 if engine.overlaps else 1
        require_memory(steps, len(frames), shape, engine.device, engine.group, count)
        self._storage = [
            Rollout(steps, len(frames), shape, engine.device, *process, self.env.num_actions)
            for _ in range(count)
        ]
        self._own = self._storage[0]
        self._own.begin(frames)
        self._continues = False
        self._share()

    def _share(self) -> None:
        """Let all processes know what each of them has collected and counted."""
        group = self.engine.group
        self.rollout = self._own if group.size == 1 else self._own.whole(group.gather)
        self.env.merge(lambda tensor: group.gather(tensor[None]))

    def keep_states(self) -> bool:
        """Store true states from now on; return whether the environments tell them."""
        if self.env.true_states() is None:
            return False
        for rollout in self._storage:
            rollout.states = torch.zeros_like(rollout.dones, dtype=torch.int64)
        return True

    def collect(self, act: Act) -> Rollout:
        """Collect a rollout that continues the last one."""
        rollout = self._next_storage()
        for t in range(rollout.steps):
            times, envs = rollout.at(t)
            if self.env.capturable:
                self._whole_step(times, envs, rollout=rollout, act=act)
            else:
                self._store_states(times, envs, rollout)
                actions = self._act_step(times, envs, rollout=rollout, act=act)
                step = self.env.step(actions)
                answer = step.frames, step.rewards, step.dones
                self._store_step(times, envs, *answer, rollout=rollout)
            self._on_step(t)
            self.engine.idle()
        self._value_step(*rollout.at(rollout.steps), rollout=rollout, act=act)
        self._share()
        return self.rollout

    def _next_storage(self) -> Rollout:
        if self._continues:
            following = self._storage[self._storage.index(self._own) - 1]  # the other one, if any
            following.continue_from(self._own)
            self._own = following
        self._continues = True
        return self._own

    def _act_and_step(self, t: Tensor, envs: Tensor, rollout: Rollout, act: Act) -> None:
        self._store_states(t, envs, rollout)
        step = self.env.step(self._act(t, envs, rollout, act))
        rollout.store_step(t, envs, step.frames, step.rewards, step.dones)

    def _store_states(self, t: Tensor, envs: Tensor, rollout: Rollout) -> None:
        if rollout.states is not None and (states := self.env.true_states()) is not None:
            rollout.states[t, envs] = states

    def _act(self, t: Tensor, envs: Tensor, rollout: Rollout, act: Act) -> Tensor:
        actions, log_probs, values = self._policy(t, envs, rollout, act)
        rollout.store_actions(t, envs, actions, log_probs, values)
        return actions

    def _policy(
        self, t: Tensor, envs: Tensor, rollout: Rollout, act: Act
    ) -> tuple[Tensor, Tensor, Tensor]:
        obs = rollout.stacks(t, envs)
        if self.engine.group.size == 1:
            return act(obs)
        # All processes draw for the environments of all, so that their generators stay equal.
        space = action_space(self.env.num_actions)
        draws = torch.empty(self.engine.group.size, len(obs), space.width, device=obs.device)
        return act(obs, space.fill(draws)[self.engine.group.rank])

    def _store(self, *step: Tensor, rollout: Rollout) -> None:
        rollout.store_step(*step)

    def _store_values(self, t: Tensor, envs: Tensor, rollout: Rollout, act: Act) -> None:
        rollout.values[t, envs] = self._policy(t, envs, rollout, act)[2]

    @property
    def restorable(self) -> bool:
        """Whether a checkpoint continues the episodes under way."""
        return self.env.restorable

    def metrics(self) -> dict[str, float]:
        """Return what only the environments know, such as coverage."""
        return self.env.metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the last observation and the environments, of all processes."""
        states = self.engine.group.gather_objects(self._env_state() if self.restorable else {})
        ranks = {"env_ranks": states} if len(states) > 1 else {}
        return {"rollout": self.rollout.state_dict(), "env": states[0], **ranks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the episodes of a checkpoint; where they cannot be restored, number new ones."""
        states = state.get("env_ranks", [state["env"]])
        if self.env.must_continue and len(states) != self.engine.group.size:
            raise ConfigError(
                f"the checkpoint is of {len(states)} processes, and here are "
                f"{self.engine.group.size}; start as many"
            )
        fits = self.restorable and len(states) == self.engine.group.size
        self.continued = fits and self._load_env_state(states[self.engine.group.rank])
        if self.continued:
            self._own.load_state_dict(state["rollout"])
            self._continues = True
        else:
            self._own.number_episodes_after(state["rollout"]["episodes"])
        self._share()

    def _env_state(self) -> dict[str, Any]:
        return self.env.state_dict()

    def _load_env_state(self, state: dict[str, Any]) -> bool:
        """Load the environments of this process; return False if they were in other pools."""
        if not state or "pools" in state:
            return False
        self.env.load_state_dict(state)
        return True

    def close(self) -> None:
        """Let go of the environments."""
        self.env.close()
