"""The contract of an intrinsic reward: it knows transitions, nothing else."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ssedb.errors import Blamed
from ssedb.normalize import ObsNorm
from ssedb.validate import Channels, PositiveInt


@dataclass(frozen=True)
class BonusOptions:
    """A bonus without settings."""

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        """The settings that the names imply."""
        return {}


@dataclass(frozen=True)
class FeatureOptions(BonusOptions):
    """Sizes of a bonus that compares features of frames."""

    channels: Channels = (32, 64, 64)
    """Filters of the three convolutions."""
    feature_dim: PositiveInt = 512
    """Size of the features."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": dict(channels=(16, 32, 32), feature_dim=256),
        "rooms": dict(channels=(8, 16, 16), feature_dim=64),
    }

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        return cls.PRESETS[preset]


@dataclass(frozen=True)
class Context:
    """What a trainer knows of transitions beyond themselves."""

    episodes: Tensor  # int64 [B], a number for each episode, whose transitions come in order
    states: Tensor | None = None  # int64 [B], the true state acted in, where the world tells it


class Bonus(nn.Module, ABC):
    """An intrinsic reward and the model behind it.

    Observations are stacks, uint8 [B, C, H, W]; actions are int64 [B]. A subclass lives in a file of
    its own in this folder, is named in that file's `BONUS`, and is built as
    `cls(obs_shape, num_actions, options)`.
    """

    Options: type[Any] = BonusOptions
    gives_reward: ClassVar[bool] = True
    """Whether there is a reward; without it (and without extrinsic reward) the policy stays uniform."""
    deterministic: ClassVar[bool] = True
    """Whether the same call of `reward` gives the same answer."""
    uses_context: ClassVar[bool] = False
    """Whether `reward` and `observe` are given a `Context` as a fourth argument."""
    capturable: ClassVar[bool] = True
    """Whether `reward`, `loss` and `after_step` may be captured as CUDA graphs: no shapes that depend
    on data, no waiting for the device, no Python state that changes from call to call."""
    needs_states = False
    """Whether the context must hold true states, which few environments tell."""
    fixed: tuple[str, ...] = ()
    """Submodules that no gradient may reach: targets, momentum copies, random features."""

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.normalize = ObsNorm(obs_shape)

    @abstractmethod
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        """The reward of each transition, float32 [B], without gradient; changes nothing."""

    @abstractmethod
    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what to minimise, a scalar with gradient, and metrics.

        A mask, bool [B], names the transitions that count; the others are pairs across an episode's
        end. A bonus without trained parameters returns a constant.
        """

    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        """Called with every transition once, after its reward: counts and memories move here."""

    def after_step(self) -> None:
        """Called after each optimiser step."""

    def after_epoch(self) -> None:
        """Called after each pass over a rollout."""

    def after_rollout(self) -> None:
        """Called when all updates on a rollout are done."""

    def features(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """The representation behind the reward, [B, D], without gradient; None if there is none."""
        return None

    def diagnostics(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> dict[str, Tensor]:
        """Slower metrics, asked for once a rollout on one minibatch.

        Perhaps on a worker thread, while the next rollout is collected: a method that changes
        nothing and draws nothing at random.
        """
        return {}


def checked(bonus: Bonus, method: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Return what a method of a bonus gave; raise Blamed if it is no tensor of that shape."""
    if isinstance(value, Tensor) and value.shape == shape:
        return value
    tensor = isinstance(value, Tensor)
    given = f"shape {list(value.shape)}" if tensor else f"a {type(value).__name__}"
    owner = f"{type(bonus).__name__}.{method}"
    message = f"{owner} gave {given}, not a tensor of shape {list(shape)}"
    raise Blamed(message, "".join(traceback.format_stack()))
