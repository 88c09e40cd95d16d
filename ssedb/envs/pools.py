"""Environments in parts: while some are stepped on the host, the actions of another are chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ssedb.engine import Engine
from ssedb.envs.base import Env, Step


class Pools(Env):
    """Environments in parts that step independently; environment i of part p of k is number i k + p.

    Dealt out in turn, a contiguous share of all of them is a contiguous share of every part, so that several processes can
    have a share each.
    """

    def __init__(self, parts: Sequence[Env]) -> None:
        first = parts[0]
        self._parts = tuple(parts)
        self.num_envs = sum(part.num_envs for part in parts)
        self.num_actions, self.device, self.on_host, self.per_env = (
            first.num_actions,
            first.device,
            first.on_host,
            first.per_env,
        )

    @property
    def parts(self) -> tuple[Env, ...]:
        return self._parts

    def reset(self) -> Tensor:
        return _deal([part.reset() for part in self._parts])

    def step(self, actions: Tensor) -> Step:
        self.send(actions)
        return self.recv()

    def send(self, actions: Tensor, then: Callable[[], None] = lambda: None) -> None:
        for i, part in enumerate(self._parts):
            part.send(actions[i :: len(self._parts)])
        then()  # for all together nothing can be done before the slowest is ready

    def recv(self) -> Step:
        steps = [part.recv() for part in self._parts]
        frames = _deal([step.frames for step in steps])

        def last() -> Tensor:
            pools = [
                frames[i :: len(steps)] for i in range(len(steps))
            ]  # those of the steps are good until the next
            lasts = [step.final_frames for step in steps]
            return _deal(
                [pool if last is None else last() for pool, last in zip(pools, lasts, strict=True)]
            )

        return Step(
            frames,
            _deal([step.rewards for step in steps]),
            _deal([step.dones for step in steps]),
            last if any(step.final_frames for step in steps) else None,
        )

    def prepare(self, engine: Engine) -> None:
        for part in self._parts:
            part.prepare(engine)

    def stagger(self) -> None:
        for part in self._parts:
            part.stagger()

    def state_dict(self) -> dict[str, Any]:
        return {str(i): part.state_dict() for i, part in enumerate(self._parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != {str(i) for i in range(len(self._parts))}:
            raise ValueError(
                f"its environments are not in {len(self._parts)} pools; another version of ssedb wrote it"
            )
        for i, part in enumerate(self._parts):
            part.load_state_dict(state[str(i)])

    def close(self) -> None:
        for part in self._parts:
            part.close()


def _deal(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts, 1).flatten(0, 1)
