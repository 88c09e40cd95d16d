"""Gymnasium: a wrapper of vector environments that rewards with a bonus."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from ssedb.errors import ConfigError
from ssedb.integrations.reward import IntrinsicReward, as_reward
from ssedb.integrations.samples import as_array
from ssedb.integrations.settings import argument
from ssedb.integrations.stepwise import Stepwise


class VectorIntrinsicReward(VectorWrapper):
    """Vector environments that tell the intrinsic reward of every step.

    `info["intrinsic_reward"]` [N] is the scaled bonus, `info["extrinsic_reward"]` [N] the game's.
    The bonus is updated every `update_every` steps, first after 128 or more, before which nothing
    is rewarded. Episode ends make no false transitions: neither the first observation of the next
    episode (`SAME_STEP`) nor the step that only resets (`NEXT_STEP`) is rewarded.
    """

    def __init__(
        self,
        env: VectorEnv,
        bonus: str | IntrinsicReward = "db",
        *,
        add_to: Literal["info", "reward"] = "info",
        intrinsic_coef: float = 1.0,
        extrinsic_coef: float = 1.0,
        update_every: int = 128,
        **settings: Any,
    ) -> None:
        """Wrap environments.

        Args:
            env: the environments.
            bonus: a name, or a reward that is made already.
            add_to: `info`: report the bonus in `info` only; `reward`: also add it to the reward.
            intrinsic_coef: weight of the scaled bonus in the reward.
            extrinsic_coef: weight of the environment's own reward; 0 switches it off.
            update_every: steps of all environments between two updates of the bonus.
            settings: of `IntrinsicReward`, if a name is given.
        """
        if not isinstance(env, VectorEnv):
            raise ConfigError(f"env={env}: give vector environments, such as gymnasium.make_vec's")
        super().__init__(env)
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
            raise ConfigError(f"autoreset_mode={mode}: use AutoresetMode.SAME_STEP or NEXT_STEP")
        self._same_step = mode == AutoresetMode.SAME_STEP
        self.add_to: str = argument("add_to", add_to)
        self.intrinsic_coef: float = argument("intrinsic_coef", intrinsic_coef)
        self.extrinsic_coef: float = argument("extrinsic_coef", extrinsic_coef)
        reward = as_reward(bonus, env, settings)
        self._stepwise = Stepwise(reward, argument("update_every", update_every))
        self._obs: Any = None
        self._ended = np.zeros(env.num_envs, bool)

    @property
    def reward(self) -> IntrinsicReward:
        """The bonus and all that belongs to it."""
        return self._stepwise.reward

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of `options["reset_mask"]`, bool [N]."""
        which = (kwargs.get("options") or {}).get("reset_mask")  # before environments take it out
        obs, info = self.env.reset(**kwargs)
        self._obs = self._seen(obs)
        self._ended[slice(None) if which is None else which] = False
        self._stepwise.begin_episodes(which)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act; return what the environments do, with the intrinsic reward in `info`."""
        obs, rewards, terminated, truncated, info = self.env.step(actions)
        dones = terminated | truncated
        seen = self._seen(obs)
        next_obs = seen.copy()
        if self._same_step:
            for i in np.flatnonzero(dones):
                next_obs[i] = self.reward.inputs.select(info["final_obs"][i], ())
        intrinsic = self._stepwise(self._obs, actions, dones, next_obs, valid=~self._ended)
        if not self._same_step:
            self._ended = dones
        self._obs = seen
        info = {**info, "intrinsic_reward": intrinsic, "extrinsic_reward": rewards}
        if self.add_to == "reward":
            rewards = self.extrinsic_coef * rewards + self.intrinsic_coef * intrinsic
        return obs, rewards, terminated, truncated, info

    def _seen(self, obs: Any) -> np.ndarray:
        """Return a copy of what the bonus sees, which environments may not write into."""
        return as_array(self.reward.inputs.select(obs, (self.num_envs,)))
