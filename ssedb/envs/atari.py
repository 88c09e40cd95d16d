"""Atari by ale-py's vector environment: C++ threads, one call per step for all games.

The vector environment cannot be read out. Its state follows from an emulator's seed, the number of
episodes since and the actions of the one under way. A checkpoint holds these, and a resume
repeats them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from torch import Tensor

from ssedb.envs.base import HostEnv, HostStep

FRAME_SKIP = 4
RAW_SIZE = (210, 160)
EPISODES_PER_SEED = 100
"""Episodes after which an emulator gets a new seed, so that few are counted off after a resume.

To seed reloads the ROM, which takes as long as 250 steps; to begin an episode takes 15."""


class AtariEnv(HostEnv):
    """N copies of an Atari game with the paper's preprocessing.

    Skip 4 with the maximum of the last 2 frames, 0 to 30 no-ops, 4500 steps at most, the score
    unclipped, no fire at reset, a lost life does not end an episode. Frames are gray and 84x84, or
    with `raw` the emulator's RGB picture of 210x160.

    A saved state is restored exactly, except with sticky actions inside the emulator.
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
        self._random_repeats = frame_sticky > 0
        self._seed = seed
        self._seedings = np.zeros(num_envs, np.int64)
        self._episodes = np.ones(num_envs, np.int64)  # begun since the last seeding
        self._ages = np.zeros(num_envs, np.int64)
        self._actions = np.zeros((256, num_envs), np.uint8)  # of the episodes under way

    def reset(self) -> Tensor:
        if self._sent:  # discard an answer that nobody has received
            self.caller.call(self.recv)
        self._seedings[:] = 0
        self._episodes[:] = 1
        self._ages[:] = 0
        frames, _ = self.ale.reset(seed=self._seeds())
        return torch.from_numpy(frames[:, 0]).to(self.device)

    def send(self, actions: np.ndarray) -> None:
        if self._ages.max() == len(self._actions):
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)])
        self._actions[self._ages, np.arange(self.num_envs)] = actions
        self._ages += 1
        self.ale.send(actions)
        self._sent = True

    def recv(self) -> HostStep:
        frames, rewards, terminated, truncated, info = self.ale.recv()
        self._sent = False
        dones = terminated | truncated
        frames, final = frames[:, 0], None  # stacks of one
        if dones.any():
            final = info["final_obs"][:, 0]
            self._ages[dones] = 0
            self._episodes[dones] += 1
            due = self._episodes > EPISODES_PER_SEED
            if due.any() and not self._random_repeats:
                self._seedings[due] += 1
                self._episodes[due] = 1
                frames[due] = self._begin(due)[due]
        return HostStep(frames, rewards.astype(np.float32), dones, final)

    @property
    def restorable(self) -> bool:
        # Sticky actions in the emulator draw at every frame since the seeding.
        return not self._random_repeats

    def state_dict(self) -> dict[str, Any]:
        arrays: dict[str, np.ndarray] = {
            "seedings": self._seedings,
            "episodes": self._episodes,
            "ages": self._ages,
            "actions": self._actions[: self._ages.max()],
        }
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        return {"seed": self._seed, **tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replay the actions of unfinished episodes; all emulators arrive in the same step."""
        self._seed = state["seed"]
        self._seedings[:] = state["seedings"].numpy()
        self._episodes[:] = state["episodes"].numpy()
        self._ages[:] = ages = state["ages"].numpy()
        actions, longest = state["actions"].numpy(), int(ages.max())
        self._actions = np.concatenate([actions, np.zeros((256, self.num_envs), np.uint8)])
        for t in range(longest + 1):
            age = t - (longest - ages)  # of each emulator; below 0 its episode has not begun
            if (age == 0).any():
                self._begin(age == 0)
            if t < longest:
                replayed = actions[age.clip(0), np.arange(self.num_envs)].astype(np.int64)
                self.ale.send(np.where(age >= 0, replayed, 0))
                self.caller.call(self.ale.recv)

    def _begin(self, which: np.ndarray) -> np.ndarray:
        """Seed some emulators and begin as many episodes as they have had; return all frames."""
        frames, _ = self.ale.reset(seed=self._seeds()[which], options={"reset_mask": which})
        for number in range(1, int(self._episodes[which].max())):
            again = which & (self._episodes > number)
            frames, _ = self.ale.reset(options={"reset_mask": again})
        return frames[:, 0]

    def _seeds(self) -> np.ndarray:
        """Return the seed of each emulator, int32 [N]."""
        seeds = np.zeros(self.num_envs, np.int32)
        for number in np.unique(self._seedings):
            # Consecutive seeds would make env 1 of run 0 the twin of env 0 of run 1.
            rng = np.random.default_rng([self._seed, number] if number else self._seed)
            drawn = rng.integers(0, 2**31 - 1, self.num_envs, dtype=np.int32)
            seeds = np.where(self._seedings == number, drawn, seeds)
        return seeds
