"""Atari through ale-py's vector environment: C++ threads, one call a step for all games."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from torch import Tensor

from ssedb.engine import Bridge
from ssedb.envs.base import Env, Step
from ssedb.parallel import part
from ssedb.threads import Courier, giving_way, patiently

FRAME_SKIP = 4
RAW_SIZE = (210, 160)


class AtariEnv(Env):
    """N copies of a game as the paper plays it: skip 4 with the maximum of the last 2 frames, 0 to 30 no-ops,
    4500 steps at most, the score unclipped, no fire at reset, a life lost is not an end.

    The emulator makes gray 84x84 frames, or with `raw` hands over its RGB picture of 210x160.
    """

    on_host = True

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
        with giving_way(self.device):
            self.ale = AtariVectorEnv(
                game,
                num_envs,
                stack_num=1,  # stacking is the rollout's
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
        self._bridge = Bridge(self.device)
        self._courier = Courier(self.device)
        self._answer: Future[np.ndarray | None] | None = None
        # Consecutive seeds would make env 1 of run 0 the twin of env 0 of run 1.
        rng = np.random.default_rng(seed)
        self._seeds = np.asarray(
            part(lambda shape: rng.integers(0, 2**31 - 1, shape, dtype=np.int32), (num_envs,))
        )

    def reset(self) -> Tensor:
        patiently(
            self._courier.submit(self._bridge.clear).result
        )  # an answer may be under way that nobody waits for
        self._answer = None
        frames, _ = self.ale.reset(seed=self._seeds)
        nothing = np.zeros(self.num_envs)
        self._put(frames, nothing, nothing > 0)
        return self._bridge.up()[0].clone()

    def step(self, actions: Tensor) -> Step:
        self.send(actions)
        return self.recv().kept()

    def send(self, actions: Tensor, then: Callable[[], None] = lambda: None) -> None:
        self._bridge.lower(actions)
        self._answer = self._courier.submit(self._carry)
        self._answer.add_done_callback(lambda _: then())

    def _carry(self) -> np.ndarray | None:
        """In the courier's thread: actions to the emulators, and what they answer to where it goes up from. Returns the last
        frames of episodes that have ended."""
        self.ale.send(self._bridge.landed())
        frames, rewards, terminated, truncated, info = self.ale.recv()
        dones = terminated | truncated
        self._put(frames, rewards, dones)
        return info["final_obs"][:, 0] if dones.any() else None

    def _put(self, frames: np.ndarray, rewards: np.ndarray, dones: np.ndarray) -> None:
        self._bridge.put(frames[:, 0], rewards.astype(np.float32), dones)  # a stack of one frame

    def recv(self) -> Step:
        assert self._answer is not None, "nothing was sent"
        last = patiently(self._answer.result)
        self._answer = None
        frames, rewards, dones = self._bridge.up()
        return Step(
            frames,
            rewards,
            dones,
            None if last is None else lambda: torch.from_numpy(last).to(self.device),
        )

    def close(self) -> None:
        if self._answer is not None:  # under way; or stuck, and then it stays so
            wait([self._answer], timeout=1)
        self._courier.close()
