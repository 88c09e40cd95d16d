"""The pipelined collector: a GPU acts for one pool of environments while the others step.

Each pool goes on as soon as it has answered, so an environment that begins anew keeps only its own
pool waiting. The host's thread issues what the GPU does; a worker thread of each pool waits for
its actions, steps its environments and stages their frames for the GPU.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from ssedb.actions import action_space
from ssedb.collect.collector import Act, Collector
from ssedb.collect.rollout import Rollout
from ssedb.engine.base import Engine
from ssedb.engine.cuda import Transfer
from ssedb.envs.base import HostEnv
from ssedb.envs.noisy import NoisyEnv
from ssedb.envs.timeout import result_of, wait_for
from ssedb.threads import WorkerThread


class PipelinedCollector(Collector):
    """Pools of environments that a worker thread each steps on the host.

    Environment i of pool p of k is number i k + p. All random numbers for the actions of a rollout
    are drawn at its start, so none depends on which pool answers first.
    """

    def __init__(
        self,
        envs: Sequence[NoisyEnv],
        steps: int,
        engine: Engine,
        on_step: Callable[[int], None] = lambda t: None,
    ) -> None:
        """Begin episodes everywhere; arguments are those of `Collector` but for the pools `envs`.

        All pools have as many environments. `on_step` is called when all have made a step.
        """
        self.pools = [Pool(env, i, len(envs), engine, self) for i, env in enumerate(envs)]
        super().__init__(envs[0], steps, engine, on_step)
        self._space = action_space(envs[0].num_actions)
        shape = (steps + 1, engine.group.size, self._own.num_envs, self._space.width)
        self.draws = torch.zeros(shape, device=engine.device)  # of all processes, kept equal

    def _reset(self) -> Tensor:
        frames = []
        for pool in self.pools:
            frames.append(pool.env.reset())
            pool.env.stagger()
        return torch.stack(frames, 1).flatten(0, 1)

    def keep_states(self) -> bool:
        """Return False: environments in pools tell no true states."""
        return False

    def collect(self, act: Act) -> Rollout:
        """Collect a rollout that continues the last one."""
        rollout = self._next_storage()
        self._space.fill(self.draws)
        answered: SimpleQueue[Pool] = SimpleQueue()
        times = dict.fromkeys(self.pools, 0)
        for pool in self.pools:
            pool.act(rollout.at(0, pool.envs)[0], rollout=rollout, act=act)
            pool.send(partial(answered.put, pool))
        for t in range(1, rollout.steps + 1):
            while min(times.values()) < t:
                pool = wait_for(lambda seconds: answered.get(timeout=seconds))
                times[pool] += 1
                self._go_on(pool, times[pool], rollout, act, partial(answered.put, pool))
            self._on_step(t - 1)
            self.engine.idle()
        self._share()
        return self.rollout

    def _go_on(
        self, pool: Pool, t: int, rollout: Rollout, act: Act, then: Callable[[], None]
    ) -> None:
        """Store what a pool has answered; at time t, send its next actions or value the end."""
        pool.recv()
        following = pool.store_and_value if t == rollout.steps else pool.store_and_act
        following(rollout.at(t, pool.envs)[0], rollout=rollout, act=act)
        if t < rollout.steps:
            pool.send(then)

    def _env_state(self) -> dict[str, Any]:
        return {"pools": [pool.env.state_dict() for pool in self.pools]}

    def _load_env_state(self, state: dict[str, Any]) -> bool:
        states = state.get("pools", [])
        if len(states) != len(self.pools):
            return False
        for pool, own in zip(self.pools, states, strict=True):
            pool.env.load_state_dict(own)
        return True

    def close(self) -> None:
        """Let go of the environments."""
        for pool in self.pools:
            pool.close()


class Pool:
    """Environments that step together on the host, and what the GPU does for them.

    Attributes:
        env: the environments, behind their noise.
        envs: which of all environments they are.
        transfer: carries actions to the host, and frames, rewards and dones to the device.
        executed: the actions that are executed, int64 [n].
        act: step of the device on the first observations.
        store_and_act: step of the device on an answer: lay noise on it, store it, act.
        store_and_value: step of the device on the last answer: as before, but value it.
    """

    def __init__(
        self, env: NoisyEnv, number: int, pools: int, engine: Engine, owner: PipelinedCollector
    ) -> None:
        source = env.env
        assert isinstance(source, HostEnv)
        self._source = source
        self._owner = owner
        self.env = env
        self.envs = slice(number, None, pools)
        self._indices = torch.arange(pools * env.num_envs, device=engine.device)[self.envs]
        self.executed = torch.zeros(env.num_envs, dtype=torch.int64, device=engine.device)
        self.transfer = Transfer(engine.device)
        self._worker = WorkerThread(engine.device)
        self._answer: Future[None] | None = None
        capturable = env.noise_state.noise.capturable
        wrap = partial(engine.wrap, capturable=capturable, generators=env.generators)
        self.act = wrap(self._act)
        self.store_and_act = wrap(self._store_and_act)
        self.store_and_value = wrap(self._store_and_value)

    def send(self, then: Callable[[], None]) -> None:
        """Begin to execute the actions; the worker thread calls `then` when the answer is there."""
        self.transfer.download(self.executed)
        self._answer = self._worker.submit(self._step)
        self._answer.add_done_callback(lambda _: then())

    def _step(self) -> None:
        """Step the environments and stage their answer, on the worker thread."""
        self._source.send(self.transfer.downloaded())
        answer = self._source.recv()
        self.transfer.stage(answer.frames, answer.rewards, answer.dones)

    def recv(self) -> None:
        """Begin to copy the answer to the device; raise what went wrong on the worker thread."""
        assert self._answer is not None, "nothing was sent"
        result_of(self._answer)
        self._answer = None
        self.transfer.upload()

    def close(self) -> None:
        """End the worker thread; one that is stuck stays so."""
        if self._answer is not None:
            wait([self._answer], timeout=1)
        self._worker.close()
        self.env.close()

    def _act(self, t: Tensor, rollout: Rollout, act: Act) -> None:
        actions, log_probs, values = self._policy(t, rollout, act)
        rollout.store_actions(t, self._indices, actions, log_probs, values)
        self.executed.copy_(self.env.noise_state.disturb_actions(actions))

    def _store_and_act(self, t: Tensor, rollout: Rollout, act: Act) -> None:
        self._store(t, rollout)
        self._act(t, rollout, act)

    def _store_and_value(self, t: Tensor, rollout: Rollout, act: Act) -> None:
        self._store(t, rollout)
        rollout.values[t, self._indices] = self._policy(t, rollout, act)[2]

    def _policy(self, t: Tensor, rollout: Rollout, act: Act) -> tuple[Tensor, Tensor, Tensor]:
        draws = self._owner.draws[t, rollout.rank, self._indices]
        return act(rollout.stacks(t, self._indices), draws)

    def _store(self, t: Tensor, rollout: Rollout) -> None:
        frames, rewards, dones = self.transfer.uploaded
        self.env.noise_state.advance(self.executed, dones)
        seen = self.env.noise_state.agent_frames(frames)
        rollout.store_step(t - 1, self._indices, seen, rewards, dones)


_next_pair = itertools.count(os.getpid())  # several processes begin at different cores


@contextmanager
def low_priority_threads() -> Iterator[None]:
    """Give threads started in the block the lowest priority, and pin each to two cores.

    Emulators have more threads than there are cores. A woken one would take the learner's core for
    milliseconds and starve the other pools. Pinning saves a few percent. Each gets two cores,
    because another program may keep one busy. Linux only; a sandbox may refuse.
    """
    if sys.platform != "linux":
        yield
        return
    before = set(os.listdir("/proc/self/task"))
    yield
    cores = sorted(os.sched_getaffinity(0))
    pairs = [{core, cores[i + 1 - len(cores)]} for i, core in enumerate(cores)][::2]
    for thread in sorted(int(thread) for thread in set(os.listdir("/proc/self/task")) - before):
        with suppress(OSError):
            os.sched_setaffinity(thread, pairs[next(_next_pair) % len(pairs)])
        try:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        except OSError:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, 10)
