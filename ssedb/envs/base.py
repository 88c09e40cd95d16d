"""The contract of a vector environment: it hands over the newest frame only, on the learner's device."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssedb.engine import Engine, lasts
from ssedb.envs.frames import SIDE
from ssedb.parallel import Team


@dataclass
class Step:
    """What N environments answer to N actions. An ended episode has begun again already (SAME_STEP autoreset)."""

    frames: (
        Tensor  # uint8 [N, H, W] or [N, H, W, 3]; after an end, the first frame of the next episode
    )
    rewards: Tensor  # float32 [N], as the game gives them
    dones: Tensor  # bool [N], the episode ended or was cut
    final_frames: Callable[[], Tensor] | None = None
    """Makes what is like frames, but the last one where dones is set; None if nothing ended. Training does not ask."""

    def kept(self) -> Step:
        """The same for who keeps it: apart from what the next answer may overwrite."""
        frames, rewards, dones = (
            x.clone() if lasts(x) else x for x in (self.frames, self.rewards, self.dones)
        )
        return dataclasses.replace(self, frames=frames, rewards=rewards, dones=dones)


class Env(ABC):
    """N environments side by side."""

    num_envs: int
    num_actions: int
    device: torch.device
    side: int = SIDE
    """Height and width of the agent's frames."""
    on_host: bool = False
    """Whether the host does the stepping, so that a GPU has nothing to do meanwhile."""
    per_env: tuple[str, ...] = ()
    """Entries of `state_dict`, at any depth, that are tensors with a row for each environment."""

    @abstractmethod
    def reset(self) -> Tensor:
        """Begin an episode everywhere; returns the frames, uint8 [N, H, W] or [N, H, W, 3]."""

    @abstractmethod
    def step(self, actions: Tensor) -> Step:
        """Act; actions are int64 [N]."""

    def send(self, actions: Tensor, then: Callable[[], None] = lambda: None) -> None:
        """Begin to act; `recv` waits for the answer. `then` is called, perhaps by another thread, when the answer is there.
        Where the stepping is not asynchronous it happens in `recv`, and `then` is called at once."""
        self._sent = actions
        then()

    def recv(self) -> Step:
        """The answer to what was sent; good until the next, which may come to the same place."""
        return self.step(self._sent)

    @property
    def parts(self) -> tuple[Env, ...]:
        """What can be stepped independently: part i of k has the environments i, i + k, i + 2k and so on."""
        return (self,)

    def prepare(self, engine: Engine) -> None:  # noqa: B027 (most have nothing to gain)
        """Lets an engine make ready what happens on the device at every step."""

    def stagger(self) -> None:  # noqa: B027 (games end at different times by themselves)
        """After a reset: cut the first episodes short by group, where all would otherwise end at the same time."""

    def true_states(self) -> Tensor | None:
        """The number of the true state each environment is in, int64 [N], where that is known."""
        return None

    def metrics(self) -> dict[str, float]:
        """Figures for the log that only the environment knows, such as coverage."""
        return {}

    def merge(self, team: Team) -> None:  # noqa: B027 (most environments count nothing)
        """Where several processes have environments: what those of all have counted becomes known to each."""

    @property
    def restorable(self) -> bool:
        """Whether `state_dict` is enough to continue exactly; Atari's emulator cannot be read, so there it is not."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """What can be saved of the state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Takes over what `state_dict` saved."""

    def close(self) -> None:  # noqa: B027 (most environments hold nothing to close)
        """Let go of emulators and windows."""
