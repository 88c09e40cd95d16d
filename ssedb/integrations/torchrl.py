"""TorchRL: a transform that writes the intrinsic reward, and the loss module of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssedb.errors import ConfigError, require_installed
from ssedb.integrations.reward import IntrinsicReward, require_reward
from ssedb.integrations.settings import argument
from ssedb.integrations.stepwise import Stepwise

require_installed("torchrl", "tensordict", extra="torchrl")

from tensordict import TensorDict, TensorDictBase  # noqa: E402
from tensordict.utils import NestedKey  # noqa: E402
from torchrl.data.tensor_specs import Unbounded  # noqa: E402
from torchrl.envs.transforms import Transform  # noqa: E402
from torchrl.objectives.common import LossModule  # noqa: E402


class IntrinsicRewardTransform(Transform):  # type: ignore[misc]
    """Intrinsic reward of every step, written beside the reward, and into it if asked.

    The transform scales the reward and shows transitions to a bonus that counts or remembers.
    `IntrinsicRewardLoss` trains the model; without `add_to_reward` the two together take the place
    of `RNDTransform` and `RNDLoss`. The first `scale_every` steps, 128 or more, are not rewarded.

    Put it before transforms that turn pixels into floats: it takes observations as the
    environment gives them. `IntrinsicRewardLoss` does, too, so let such transforms write to
    another key (`out_keys`). For evaluation make environments without it.
    """

    def __init__(
        self,
        reward: IntrinsicReward,
        in_keys: list[NestedKey] | None = None,
        out_keys: list[NestedKey] | None = None,
        *,
        action_key: NestedKey = "action",
        add_to_reward: bool = False,
        intrinsic_coef: float = 1.0,
        extrinsic_coef: float = 1.0,
        scale_every: int = 128,
    ) -> None:
        """Make a transform for one environment or a batch of them.

        Args:
            reward: the bonus.
            in_keys: key of observations; `observation` unless given.
            out_keys: key to write to; `intrinsic_reward` unless given.
            action_key: key of actions, one-hot or not.
            add_to_reward: whether the bonus makes up the reward with the environment's.
            intrinsic_coef: weight of the scaled bonus in that reward.
            extrinsic_coef: weight of the environment's; 0 switches it off.
            scale_every: steps between two updates of the scale.
        """
        super().__init__(
            in_keys=["observation"] if in_keys is None else in_keys,
            out_keys=["intrinsic_reward"] if out_keys is None else out_keys,
        )
        if len(self.in_keys) != 1 or len(self.out_keys) != 1:
            raise ConfigError(f"in_keys={self.in_keys}, out_keys={self.out_keys}: give one of each")
        require_reward("reward", reward)
        self.bonus = reward.bonus  # so that parameters and state_dict include it
        self.action_key = action_key
        self.add_to_reward = add_to_reward
        self.intrinsic_coef: float = argument("intrinsic_coef", intrinsic_coef)
        self.extrinsic_coef: float = argument("extrinsic_coef", extrinsic_coef)
        self._stepwise = Stepwise(reward, argument("scale_every", scale_every), trains=False)
        self._obs: Tensor | None = None

    @property
    def reward(self) -> IntrinsicReward:
        """The bonus and all that belongs to it."""
        return self._stepwise.reward

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        batch = tensordict.batch_size
        given = next_tensordict["reward"]
        done = next_tensordict["done"].reshape(-1)
        next_obs = _flat(next_tensordict[self.in_keys[0]], batch)
        actions = _flat(tensordict[self.action_key], batch)
        # Not the observation in `tensordict`: transforms after this one may have changed it.
        bonus = torch.as_tensor(self._stepwise(self._obs, actions, done, next_obs))
        self._obs = next_obs.clone()
        bonus = bonus.to(given.device).reshape(given.shape)
        next_tensordict.set(self.out_keys[0], bonus)
        if self.add_to_reward:
            total = self.extrinsic_coef * given + self.intrinsic_coef * bonus
            next_tensordict.set("reward", total)
        return next_tensordict

    def _reset(
        self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        which = tensordict.get("_reset", None)
        which = None if which is None else which.reshape(-1)
        self._stepwise.begin_episodes(which)
        if self.in_keys[0] not in tensordict_reset.keys(include_nested=True):
            given = ", ".join(map(str, tensordict_reset.keys()))
            raise ConfigError(
                f"in_keys={self.in_keys}: the environment gives {given}; name its observations"
            )
        obs = _flat(tensordict_reset[self.in_keys[0]], tensordict_reset.batch_size).clone()
        if which is not None and self._obs is not None:
            obs[~which] = self._obs[~which]
        self._obs = obs
        return tensordict_reset

    def transform_reward_spec(self, reward_spec: Any) -> Any:
        """Add the intrinsic reward to the specs."""
        one = reward_spec["reward"]
        spec = Unbounded(shape=one.shape, device=one.device, dtype=torch.float32)
        reward_spec[self.out_keys[0]] = spec
        if self.add_to_reward:
            reward_spec["reward"] = spec.clone()
        return reward_spec

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.bonus = self.reward.bonus  # a copy, too, saves and trains the model that rewards

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is not in parameters and buffers: the scale and the episodes under way."""
        state = self.reward.state_dict()
        del state["bonus"]
        return state

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load the scale and the episodes under way."""
        self.reward.load_state_dict({**state, "bonus": self.bonus.state_dict()})


class IntrinsicRewardLoss(LossModule):  # type: ignore[misc]
    """Loss of the model behind an intrinsic reward, as `loss_bonus`.

    The optimizer is the user's, over `loss.parameters()`. Call `after_step` after each of its
    steps, `after_epoch` after each pass over a rollout, and `after_rollout` when all passes are
    done. Momentum copies, the memory of DB-count and the models of LPM follow these calls.
    """

    @dataclass
    class _AcceptedKeys:
        """Keys of a batch of transitions."""

        observation: NestedKey = "observation"
        action: NestedKey = "action"
        next_observation: NestedKey = ("next", "observation")

    default_keys = _AcceptedKeys
    out_keys = ["loss_bonus"]  # noqa: RUF012 (as TorchRL's own losses have it)

    def __init__(self, reward: IntrinsicReward) -> None:
        """Make the loss of a reward that a transform may hold as well."""
        super().__init__()
        require_reward("reward", reward)
        self.bonus = reward.bonus
        self._reward = [reward]  # in a list: no second copy in the state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.bonus = self._reward[0].bonus  # a copy, too, trains the model that rewards

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        pass

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return `loss_bonus` of a batch of any shape, and the bonus's metrics."""
        reward, keys = self._reward[0], self.tensor_keys
        batch = tensordict.batch_size
        obs, actions, next_obs = (
            _flat(tensordict[key], batch)
            for key in (keys.observation, keys.action, keys.next_observation)
        )
        loss, metrics = self.bonus.loss(*reward.inputs.transitions(obs, actions, next_obs))
        return TensorDict({"loss_bonus": loss, **metrics}, batch_size=[])

    def after_step(self) -> None:
        """Call after each step of the optimizer."""
        self.bonus.after_step()

    def after_epoch(self) -> None:
        """Call after each pass over a rollout."""
        self.bonus.after_epoch()

    def after_rollout(self) -> None:
        """Call when all passes over a rollout are done."""
        self.bonus.after_rollout()


def _flat(x: Tensor, batch: torch.Size) -> Tensor:
    """Flatten the batch dimensions, perhaps none, to one."""
    return x.reshape(-1, *x.shape[len(batch) :])
