"""Stable-Baselines3: a callback for PPO and A2C, and a wrapper for any algorithm."""

from __future__ import annotations

import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch

from ssedb.errors import ConfigError, Note, require_installed
from ssedb.integrations.reward import IntrinsicReward, as_reward
from ssedb.integrations.samples import as_array
from ssedb.integrations.settings import argument
from ssedb.integrations.stepwise import Stepwise
from ssedb.validate import plain

require_installed("stable_baselines3", extra="sb3")

from stable_baselines3.common.buffers import RolloutBuffer  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm  # noqa: E402
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper  # noqa: E402


class IntrinsicRewardCallback(BaseCallback):
    """Intrinsic rewards for PPO and A2C, added to the rollout buffer before it is learned from.

    The bonus goes into the buffer's rewards and the returns are computed again, so that the policy
    looks ahead to it. The model keeps the bonus as `model.intrinsic_reward`: `model.save` saves it,
    and after `PPO.load` a callback with the same bonus goes on with it.
    """

    def __init__(
        self,
        bonus: str | IntrinsicReward,
        *,
        intrinsic_coef: float = 1.0,
        extrinsic_coef: float = 1.0,
        verbose: int = 0,
        **settings: Any,
    ) -> None:
        """Prepare for a model.

        Args:
            bonus: a name, or a reward that is made already.
            intrinsic_coef: weight of the scaled bonus.
            extrinsic_coef: weight of the environment's reward; 0 switches it off.
            verbose: as callbacks of Stable-Baselines3 have it.
            settings: of `IntrinsicReward`, if a name is given. The discount is the model's.
        """
        super().__init__(verbose)
        self.bonus = bonus if isinstance(bonus, str) else as_reward(bonus, None, settings)
        self.intrinsic_coef: float = argument("intrinsic_coef", intrinsic_coef)
        self.extrinsic_coef: float = argument("extrinsic_coef", extrinsic_coef)
        self.settings = settings
        self.reward: IntrinsicReward
        self._extrinsic: list[np.ndarray] = []

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise ConfigError(
                f"{type(self.model).__name__} has no rollout buffer; wrap its environments in "
                "ssedb.integrations.sb3.VecIntrinsicReward"
            )
        if isinstance(self.bonus, IntrinsicReward):
            self.reward = self.bonus
        else:
            settings = {"gamma": self.model.gamma, "device": self.model.device, **self.settings}
            made = IntrinsicReward(self.bonus, self.training_env, **settings)
            self.reward = self._continued(made)
        self.reward.forget_watched()  # of a rollout that was stopped
        starts: Any = self.model._last_episode_starts  # all, if `learn` has reset the environments
        self.reward.begin_episodes(None if starts.all() else starts)
        self.model.intrinsic_reward = self.reward  # type: ignore[attr-defined]

    def _continued(self, made: IntrinsicReward) -> IntrinsicReward:
        """Return the model's own reward instead, if it has one of the same settings."""
        before = getattr(self.model, "intrinsic_reward", None)
        if before is None:
            return made
        old, new = before.identity(), made.identity()
        changed = [name for name in {**new, **old} if old.get(name) != new.get(name)]
        if not changed:
            return before
        name = changed[0]
        text = f"a new bonus begins: {name} is {new.get(name)}, the model's {old.get(name)}"
        warnings.warn(Note(text), stacklevel=2)
        return made

    def _on_rollout_start(self) -> None:
        self._extrinsic = []

    def _on_step(self) -> bool:
        step = self.locals
        next_obs = final_observations(self.reward, step["new_obs"], step["dones"], step["infos"])
        dones = step["dones"]
        actions = step.get("clipped_actions", step["actions"])  # MaskablePPO clips none
        valid = np.ones(len(dones), bool)
        self.reward.watch(
            step["obs_tensor"], actions, step["rewards"], dones, dones, next_obs, valid
        )
        self._extrinsic.append(np.array(step["rewards"]))
        return True

    def _on_rollout_end(self) -> None:
        intrinsic = self.reward.compute().cpu().numpy()
        # The buffer's rewards hold the values at time limits, too, which stay.
        changed = (self.extrinsic_coef - 1) * np.stack(self._extrinsic)
        added = changed + self.intrinsic_coef * intrinsic
        if added.any():
            buffer = self.locals["rollout_buffer"]
            # Loops of other packages do not tell the last values at the end of a rollout.
            loop: Any = getattr(type(self.model), "collect_rollouts", None)
            told = loop is OnPolicyAlgorithm.collect_rollouts
            last = self.locals["values"] if told else last_values(buffer)
            buffer.rewards += added
            buffer.compute_returns_and_advantage(last, self.locals["dones"])
        for name, value in self.reward.metrics.items():
            self.logger.record(f"intrinsic/{name}", value)


class VecIntrinsicReward(VecEnvWrapper):
    """Environments whose reward includes a bonus, for any algorithm, off-policy ones among them.

    The bonus is scaled and rewarded step by step and updated every `update_every` steps, first
    after 128 or more, before which nothing is rewarded. `infos` tell `intrinsic_reward` and
    `extrinsic_reward`.
    """

    def __init__(
        self,
        venv: VecEnv,
        bonus: str | IntrinsicReward = "db",
        *,
        intrinsic_coef: float = 1.0,
        extrinsic_coef: float = 1.0,
        update_every: int = 128,
        training: bool = True,
        **settings: Any,
    ) -> None:
        """Wrap environments.

        Args:
            venv: the environments.
            bonus: a name, or a reward that is made already.
            intrinsic_coef: weight of the scaled bonus.
            extrinsic_coef: weight of the environment's reward; 0 switches it off.
            update_every: steps of all environments between two updates of the bonus.
            training: whether to reward and learn; if not, rewards are the environment's, and the
                reward may be that of another wrapper.
            settings: of `IntrinsicReward`, if a name is given.
        """
        if not isinstance(venv, VecEnv):
            raise ConfigError(
                f"venv={venv}: give a VecEnv, such as make_vec_env of Stable-Baselines3 makes"
            )
        super().__init__(venv)
        self.intrinsic_coef: float = argument("intrinsic_coef", intrinsic_coef)
        self.extrinsic_coef: float = argument("extrinsic_coef", extrinsic_coef)
        self.training = training
        reward = as_reward(bonus, venv, settings)
        self._stepwise = Stepwise(reward, argument("update_every", update_every))
        self._obs: Any = None
        self._taken: Any = None
        self._begun = np.zeros(venv.num_envs, bool)  # episodes that the reward does not know of

    @property
    def reward(self) -> IntrinsicReward:
        """The bonus and all that belongs to it."""
        return self._stepwise.reward

    def reset(self) -> Any:
        """Reset all environments."""
        obs = self.venv.reset()
        self._obs = self.reward.inputs.select(obs, (self.num_envs,))
        self._begun[:] = True
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._taken = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """End a step; return what the environments do, with the rewards changed."""
        obs, rewards, dones, infos = self.venv.step_wait()
        if self.training:
            # Not earlier: another wrapper, whose episodes go on, may share the reward.
            if self._begun.any():
                self._stepwise.begin_episodes(None if self._begun.all() else self._begun)
                self._begun[:] = False
            next_obs = final_observations(self.reward, obs, dones, infos)
            intrinsic = self._stepwise(self._obs, self._taken, dones, next_obs)
            for info, own, game in zip(infos, intrinsic, rewards, strict=True):
                info["intrinsic_reward"], info["extrinsic_reward"] = float(own), float(game)
            rewards = self.extrinsic_coef * rewards + self.intrinsic_coef * intrinsic
        else:
            self._begun |= dones
        self._obs = self.reward.inputs.select(obs, (self.num_envs,))
        return obs, rewards, dones, infos

    def save(self, path: str | Path) -> None:
        """Save the bonus and the weights of the rewards, as `VecNormalize` saves its statistics.

        Steps since the last update are not in it.
        """
        own = {
            "intrinsic_coef": self.intrinsic_coef,
            "extrinsic_coef": self.extrinsic_coef,
            "update_every": self._stepwise.update_every,
            "training": self.training,
        }
        torch.save({**plain(own), "reward": self.reward.checkpoint()}, path)

    @staticmethod
    def load(path: str | Path, venv: VecEnv) -> VecIntrinsicReward:
        """Wrap environments, of the same spaces, with what was saved."""
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            checkpoint = saved.pop("reward")
        except (AttributeError, EOFError, KeyError, RuntimeError, TypeError, UnpicklingError):
            raise ConfigError(
                f"{path}: no file of VecIntrinsicReward.save, or a damaged one; give another"
            ) from None
        reward = IntrinsicReward.from_checkpoint(checkpoint, venv)
        return VecIntrinsicReward(venv, reward, **saved)


def last_values(buffer: RolloutBuffer) -> torch.Tensor:
    """Return the values after the last step, [N], which follow from the last advantages.

    A = r + gamma V (1 - done) - v. Where an episode ended, V does not matter.
    """
    value = buffer.advantages[-1] - buffer.rewards[-1] + buffer.values[-1]
    return torch.as_tensor(value / buffer.gamma if buffer.gamma else np.zeros_like(value))


def final_observations(
    reward: IntrinsicReward, obs: Any, dones: np.ndarray, infos: list[dict[str, Any]]
) -> np.ndarray:
    """Return what a reward sees of next observations [N, ...]; at an episode's end, of its last."""
    final = as_array(reward.inputs.select(obs, (len(dones),)))
    for i in np.flatnonzero(dones):
        final[i] = reward.inputs.select(infos[i]["terminal_observation"], ())
    return final
