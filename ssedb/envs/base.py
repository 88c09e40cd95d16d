"""The contract of a vector environment: the newest frame only, on the learner's device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.envs import timeout
from ssedb.envs.frames import SIDE


@dataclass
class Step:
    """Answer of N environments to N actions; where an episode has ended, the next has begun."""

    frames: Tensor
    """uint8 [N, H, W] or [N, H, W, 3], or vectors, float32 [N, D]; where dones is set, the first
    of the next episode."""
    rewards: Tensor
    """float32 [N], extrinsic and not clipped."""
    dones: Tensor
    """bool [N], set where an episode has ended or was cut."""
    final_frames: Callable[[], Tensor] | None = None
    """Returns frames with the last frame of the episode where dones is set. None if the host knows
    that no episode has ended. Training does not call it: noise draws for them, too, and with the
    memory of the episode that has begun."""


class Env(ABC):
    """N environments side by side."""

    num_envs: int
    num_actions: NumActions
    """The number of discrete actions, or the action space."""
    device: torch.device
    vectors: bool = False
    """Whether frames are vectors, not images."""
    side: int = SIDE
    """Height and width of the agent's frames."""
    on_host: bool = False
    """Whether environments step on the host, while a GPU would be idle."""
    capturable: bool = False
    """Whether a CUDA graph may hold `step`: it waits for nothing on the host and keeps its state in
    tensors that stay in their place."""
    must_continue: bool = False
    """Whether a run cannot go on with new episodes, as counts of the run would be lost."""
    generators: Sequence[torch.Generator] = ()
    """Generators that steps draw from on the device."""

    @abstractmethod
    def reset(self) -> Tensor:
        """Begin an episode everywhere; return the frames as `Step` has them."""

    @abstractmethod
    def step(self, actions: Tensor) -> Step:
        """Execute actions, int64 [N] or as the action space has them."""

    def stagger(self) -> None:  # noqa: B027 (games end at different times by themselves)
        """Let first episodes end at different times, in groups, where all would end at once."""

    def true_states(self) -> Tensor | None:
        """Return the number of each environment's true state, int64 [N]; None if unknown."""
        return None

    def metrics(self) -> dict[str, float]:
        """Return metrics that only the environment knows, such as coverage."""
        return {}

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:  # noqa: B027 (few count)
        """Add the counts of other processes' environments.

        Args:
            gather: stacks a tensor of each process, [processes, ...].
        """

    @property
    def restorable(self) -> bool:
        """Whether `state_dict` is enough to continue exactly."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint holds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Load what `state_dict` returned."""

    def close(self) -> None:  # noqa: B027 (most environments hold nothing to close)
        """Close emulators and windows."""


@dataclass
class HostStep:
    """Answer of N environments on the host to N actions, as arrays; see `Step`."""

    frames: np.ndarray
    rewards: np.ndarray
    dones: np.ndarray
    final_frames: np.ndarray | None = None


class HostEnv(Env):
    """Environments stepped asynchronously on the host: `send` begins a step, `recv` waits."""

    on_host = True

    @abstractmethod
    def send(self, actions: np.ndarray) -> None:
        """Begin to execute actions int64 [N]."""

    @abstractmethod
    def recv(self) -> HostStep:
        """Wait for the answer to the actions that were sent."""

    @cached_property
    def caller(self) -> timeout.Caller:
        """Thread that waits for answers, so that the learner can give them up."""
        return timeout.Caller()

    def step(self, actions: Tensor) -> Step:
        """Execute actions int64 [N]; raise TrainingError if the answer does not come in time."""
        self.send(actions.cpu().numpy())
        answer = self.caller.call(self.recv)
        final = answer.final_frames
        frames, rewards, dones = (
            torch.from_numpy(x).to(self.device)
            for x in (answer.frames, answer.rewards, answer.dones)
        )
        last = None if final is None else lambda: torch.from_numpy(final).to(self.device)
        return Step(frames, rewards, dones, last)
