"""Atari by ale-py's vector environment: C++ threads, one call per step for all games."""

from __future__ import annotations

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from torch import Tensor

from ssedb.envs import timeout
from ssedb.envs.base import HostEnv, HostStep

FRAME_SKIP = 4
RAW_SIZE = (210, 160)


class AtariEnv(HostEnv):
    """N copies of an Atari game with the paper's preprocessing.

    Skip 4 with the maximum of the last 2 frames, 0 to 30 no-ops, 4500 steps at most, the score
    unclipped, no fire at reset, a lost life does not end an episode. Frames are gray and 84x84, or
    with `raw` the emulator's RGB picture of 210x160.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        raw: bool = False,
        frame_sticky: float = 0.0,
        noop_max: int = 30,
        max_steps: int = 4500,
    ) -> None:
        height, width = RAW_SIZE if raw else (84, 84)
        self.device = torch.device(device)
        self.ale = AtariVectorEnv(
            game,
            num_envs,
            stack_num=1,  # the rollout stacks
            img_height=height,
            img_width=width,
            grayscale=not raw,
            frameskip=FRAME_SKIP,
            maxpool=True,
            noop_max=noop_max + 1,  # the emulator draws a number below this
            max_num_frames_per_episode=max_steps * FRAME_SKIP,
            repeat_action_probability=frame_sticky,
            reward_clipping=False,
            use_fire_reset=False,
            episodic_life=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_envs = num_envs
        self.num_actions = len(self.ale.ale.get_action_set())
        self._sent = False
        # Consecutive seeds would make env 1 of run 0 the twin of env 0 of run 1.
        rng = np.random.default_rng(seed)
        self._seeds = rng.integers(0, 2**31 - 1, num_envs, dtype=np.int32)

    def reset(self) -> Tensor:
        if self._sent:  # discard an answer that nobody has received
            timeout.call(self.recv)
        frames, _ = self.ale.reset(seed=self._seeds)
        return torch.from_numpy(frames[:, 0]).to(self.device)

    def send(self, actions: np.ndarray) -> None:
        self.ale.send(actions)
        self._sent = True

    def recv(self) -> HostStep:
        frames, rewards, terminated, truncated, info = self.ale.recv()
        self._sent = False
        dones = terminated | truncated
        final = info["final_obs"][:, 0] if dones.any() else None
        return HostStep(frames[:, 0], rewards.astype(np.float32), dones, final)  # stacks of one
