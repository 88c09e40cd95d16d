"""Any Gymnasium environment with image observations and discrete actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from ssedb.envs.base import Env, Step
from ssedb.errors import ConfigError
from ssedb.parallel import part


class GymnasiumEnv(Env):
    """N copies of a Gymnasium environment, made by `gymnasium.make_vec`."""

    on_host = True

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        max_steps: int | None = None,
    ) -> None:
        try:
            own = gymnasium.spec(env_id).max_episode_steps  # a limit that the environment comes with is not lengthened
            limits = [steps for steps in (own, max_steps) if steps is not None]
            limit: dict[str, Any] = {"max_episode_steps": min(limits)} if limits else {}
            self._envs = gymnasium.make_vec(
                env_id,
                num_envs,
                vectorization_mode="sync",
                vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
                **limit,
            )
        except (gymnasium.error.Error, ImportError) as error:
            raise ConfigError(f"Gymnasium cannot make {env_id!r}: {' '.join(str(error).split())}") from None
        observations, actions = self._envs.single_observation_space, self._envs.single_action_space
        shape = observations.shape or ()
        image = len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3))
        if not (image and observations.dtype == np.uint8):
            raise ConfigError(f"{env_id!r} observes {observations}; ssedb needs uint8 images [H, W], [H, W, 1] or [H, W, 3]")
        if not isinstance(actions, gymnasium.spaces.Discrete):
            raise ConfigError(f"{env_id!r} takes {actions}; ssedb needs discrete actions")
        self.num_envs = num_envs
        self.num_actions = int(actions.n)
        self.device = torch.device(device)
        self._first_action = int(actions.start)
        rng = np.random.default_rng(seed)
        self._seeds = part(lambda shape: rng.integers(0, 2**31 - 1, shape), (num_envs,)).tolist()

    def reset(self) -> Tensor:
        frames, _ = self._envs.reset(seed=self._seeds)
        return self._frames(frames)

    def step(self, actions: Tensor) -> Step:
        frames, rewards, terminated, truncated, info = self._envs.step(actions.cpu().numpy() + self._first_action)
        dones = terminated | truncated
        final = None
        if dones.any():
            last = frames.copy()
            for i in np.flatnonzero(dones):
                last[i] = info["final_obs"][i]
            final = lambda: self._frames(last)  # noqa: E731
        return Step(
            self._frames(frames),
            torch.as_tensor(rewards, dtype=torch.float32, device=self.device),
            torch.as_tensor(dones, device=self.device),
            final,
        )

    def _frames(self, frames: np.ndarray) -> Tensor:
        if frames.ndim == 4 and frames.shape[-1] == 1:
            frames = frames[..., 0]
        return torch.tensor(frames, device=self.device)  # a copy: the vector env writes into its own buffer again

    def close(self) -> None:
        self._envs.close()
