"""The contract of a vector environment: the newest frame only, on the learner's device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.envs import timeout
from ssedb.envs.frames import SIDE


@dataclass
class Step:
    """What N environments answer to N actions. An ended episode has begun again already."""

    frames: (
        Tensor  # uint8 [N, H, W] or [N, H, W, 3]; after an end, the first frame of the next episode
    )
    rewards: Tensor  # float32 [N], as the game gives them
    dones: Tensor  # bool [N], the episode ended or was cut
    final_frames: Callable[[], Tensor] | None = None
    """Makes what is like frames, but the last one where dones is set. None if nothing ended, where
    the host knows that. Training does not ask."""


class Env(ABC):
    """N environments side by side."""

    num_envs: int
    num_actions: int
    device: torch.device
    side: int = SIDE
    """Height and width of the agent's frames."""
    on_host: bool = False
    """Whether the host does the stepping, so that a GPU has nothing to do meanwhile."""
    capturable: bool = False
    """Whether a CUDA graph may hold `step`: it waits for nothing on the host and keeps its state in
    tensors that stay in their place."""
    must_continue: bool = False
    """Whether a run cannot go on with new episodes, as counts of the run would be lost."""
    generators: Sequence[torch.Generator] = ()
    """Randomness that steps draw from on the device."""

    @abstractmethod
    def reset(self) -> Tensor:
        """Begin an episode everywhere; returns the frames, uint8 [N, H, W] or [N, H, W, 3]."""

    @abstractmethod
    def step(self, actions: Tensor) -> Step:
        """Act; actions are int64 [N]."""

    def stagger(self) -> None:  # noqa: B027 (games end at different times by themselves)
        """Cut the first episodes after a reset short by group, where all would end at once."""

    def true_states(self) -> Tensor | None:
        """The number of the true state each environment is in, int64 [N], where that is known."""
        return None

    def metrics(self) -> dict[str, float]:
        """Return metrics that only the environment knows, such as coverage."""
        return {}

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:  # noqa: B027 (few count)
        """Learn what the environments of other processes have counted.

        Args:
            gather: stacks a tensor of each process, [processes, ...]; of one process alone, too.
        """

    @property
    def restorable(self) -> bool:
        """Whether `state_dict` is enough to continue exactly."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """What can be saved of the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Takes over what `state_dict` saved."""

    def close(self) -> None:  # noqa: B027 (most environments hold nothing to close)
        """Let go of emulators and windows."""


@dataclass
class HostStep:
    """What N environments on the host answer to N actions, as arrays; see `Step`."""

    frames: np.ndarray
    rewards: np.ndarray
    dones: np.ndarray
    final_frames: np.ndarray | None = None


class HostEnv(Env):
    """Environments stepped asynchronously on the host: `send` begins a step, `recv` waits."""

    on_host = True

    @abstractmethod
    def send(self, actions: np.ndarray) -> None:
        """Begin to act; actions are int64 [N]."""

    @abstractmethod
    def recv(self) -> HostStep:
        """Wait for the answer to what was sent."""

    def step(self, actions: Tensor) -> Step:
        """Act and wait; raise TrainingError if the environments do not answer in time."""
        self.send(actions.cpu().numpy())
        answer = timeout.call(self.recv)
        final = answer.final_frames
        frames, rewards, dones = (
            torch.from_numpy(x).to(self.device)
            for x in (answer.frames, answer.rewards, answer.dones)
        )
        last = None if final is None else lambda: torch.from_numpy(final).to(self.device)
        return Step(frames, rewards, dones, last)
