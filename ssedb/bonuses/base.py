"""The contract of an intrinsic reward, which knows transitions and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ssedb.actions import NumActions, action_space
from ssedb.errors import Blamed
from ssedb.networks import Encoder
from ssedb.normalize import make_obs_norm
from ssedb.validate import Channels, PositiveInt


@dataclass(frozen=True)
class BonusOptions:
    """Base of the settings of a bonus; a bonus without settings uses it as it is."""

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        """Return the settings that a fidelity, a preset, an environment and a noise imply."""
        return {}


@dataclass(frozen=True)
class TrunkOptions(BonusOptions):
    """Size of the convolutions of a bonus over frames."""

    channels: Channels = (32, 64, 64)
    """Filters of the three convolutions; for vectors, dense layers of 4 units per filter."""

    CHANNELS: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(channels=(16, 32, 32)),
        "rooms": dict(channels=(8, 16, 16)),
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    """Other settings that a preset implies."""

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        return {**cls.CHANNELS.get(preset, {}), **cls.PRESETS.get(preset, {})}


@dataclass(frozen=True)
class FeatureOptions(TrunkOptions):
    """Sizes of the networks of a bonus over features of frames."""

    feature_dim: PositiveInt = 512
    """Size of the features."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(feature_dim=256),
        "rooms": dict(feature_dim=64),
    }


@dataclass(frozen=True)
class Context:
    """Episodes and true states of a batch of transitions.

    Attributes:
        episodes: int64 [B], the number of the episode; transitions of an episode come in order.
        states: int64 [B], the true state acted in; None where the environment does not tell it.
    """

    episodes: Tensor
    states: Tensor | None = None


STAND_IN = -2
"""Episode number of the first row without context; the next rows have -3, -4, ... Episodes of
training count from 0, and -1 marks unused memory."""


def episode_numbers(rows: Tensor, context: Context | None = None) -> Tensor:
    """Return the episode of each row [B, ...], int64 [B]; without context each has its own."""
    if context is not None:
        return context.episodes
    return STAND_IN - torch.arange(len(rows), device=rows.device)


class Bonus(nn.Module, ABC):
    """An intrinsic reward and the model behind it.

    Observations are stacks, uint8 [B, C, H, W], or vectors, float32 [B, D]. Actions are int64 [B],
    or as another action space has them; `self.actions.vector` turns any into vectors. A subclass
    has a file of its own in this folder, which assigns it to `BONUS`. `make_bonus` calls
    `cls(obs_shape, num_actions, options)`. Random numbers are drawn from torch's own generators,
    whose state a checkpoint holds.
    """

    Options: type[Any] = BonusOptions
    gives_reward: ClassVar[bool] = True
    """Whether there is a reward; without one, extrinsic or intrinsic, the policy stays uniform."""
    deterministic: ClassVar[bool] = True
    """Whether `reward` draws nothing at random."""
    uses_context: ClassVar[bool] = False
    """Whether `reward` and `observe` take a `Context` as a fourth argument."""
    compares_rows: ClassVar[bool] = False
    """Whether `reward` compares the rows of a batch, so that a single one has no reward."""
    uses_mask: ClassVar[bool] = False
    """Whether `observe` takes a `mask` as `loss` does, by name."""
    capturable: ClassVar[bool] = True
    """Whether CUDA graphs may hold `reward`, `loss` and `after_step`: no shape depends on data, no
    call waits for the device, no Python state changes from call to call."""
    needs_states = False
    """Whether the context must hold true states, which few environments tell."""
    fixed: tuple[str, ...] = ()
    """Submodules that no gradient may reach: targets, momentum copies, random features."""
    memories: ClassVar[tuple[str, ...]] = ()
    """Buffers and submodules that hold transitions of the run; `ssedb export` leaves them out."""

    def __init__(self, obs_shape: tuple[int, ...], num_actions: NumActions) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.actions = action_space(num_actions)
        self.normalize = make_obs_norm(obs_shape)

    @abstractmethod
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        """Return the reward of each transition, without gradient; change nothing.

        Args:
            obs: uint8 [B, C, H, W] or float32 [B, D].
            actions: int64 [B], or as the action space has them.
            next_obs: as `obs`.

        Returns:
            Rewards, float32 [B].
        """

    @abstractmethod
    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the bonus model and metrics.

        Args:
            obs: uint8 [B, C, H, W] or float32 [B, D].
            actions: int64 [B], or as the action space has them.
            next_obs: as `obs`.
            mask: bool [B], the transitions that count; the others cross the end of an episode.

        Returns:
            A scalar with gradient (a constant if nothing is trained), and scalars by name.
        """

    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        """Update counts and memories with transitions, each once, after its reward.

        With `uses_context`, a `Context` comes as a fourth argument. With `uses_mask`, `mask` comes
        by name where transitions may cross the end of an episode, so its default must be None.

        Args:
            obs: uint8 [B, C, H, W] or float32 [B, D].
            actions: int64 [B], or as the action space has them.
            next_obs: as `obs`.
        """

    def after_step(self) -> None:
        """Update what follows each optimizer step, such as momentum copies."""

    def after_epoch(self) -> None:
        """Update what follows each pass over a rollout."""

    def after_rollout(self) -> None:
        """Update what follows all updates on a rollout."""

    def features(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """Return the representation behind the reward, [B, D], without gradient, or None."""
        return None

    def diagnostics(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> dict[str, Tensor]:
        """Return slower metrics of one minibatch of a rollout, scalars by name.

        A worker thread may call this method while the next rollout is collected, so the method
        changes nothing, draws nothing at random and compiles nothing (to compile sets back the
        state of torch's generators).

        Args:
            obs: uint8 [B, C, H, W] or float32 [B, D].
            actions: int64 [B], or as the action space has them.
            next_obs: as `obs`.
        """
        return {}


class Encoded(Bonus):
    """Bonus over the features that an encoder makes of observations."""

    Options = FeatureOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.encoder = Encoder(obs_shape, options.channels, options.feature_dim)

    def encode(self, obs: Tensor) -> Tensor:
        """Return the features of observations, [B, D]."""
        return self.encoder(self.normalize.for_convs(obs))

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encode(obs)


def observes(bonus: Bonus) -> bool:
    """Tell whether a bonus counts or remembers: whether it has an `observe` of its own."""
    return type(bonus).observe is not Bonus.observe


def require_result(bonus: Bonus, method: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Return the result of a bonus's method; raise Blamed if it is no tensor of that shape."""
    tensor = isinstance(value, Tensor)
    if tensor and value.shape == shape and value.dtype != torch.float64:
        return cast(Tensor, value)
    given = f"shape {list(value.shape)} of {value.dtype}" if tensor else f"a {type(value).__name__}"
    wanted = f"a float32 tensor of shape {list(shape)}"
    raise Blamed(f"{type(bonus).__name__}.{method} gave {given}, not {wanted}", "")


def require_loss(bonus: Bonus, value: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what a bonus's `loss` gave; raise Blamed unless it is a loss and a dict of tensors."""
    owner = f"{type(bonus).__name__}.loss"
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)):
        raise Blamed(f"{owner} gave a {type(value).__name__}, not a loss and a dict of metrics", "")
    loss, metrics = value
    for name, metric in metrics.items():
        if not isinstance(metric, Tensor):
            kind = type(metric).__name__
            raise Blamed(f"{owner} gave the metric {name!r} as a {kind}, not as a tensor", "")
    return require_result(bonus, "loss", loss, ()), metrics
