"""A small environment whose pictures tell the time, and bonuses that show what they were given."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

import ssedb
from ssedb.bonuses.base import Bonus, Context

SIDE, LENGTH, SHORT = 36, 5, "rooms"
SPACES = (spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8), spaces.Discrete(3))


def picture(time: int, action: int = 0) -> np.ndarray:
    """A frame [36, 36, 1] whose upper rows are the time, and whose lower rows the last action."""
    frame = np.zeros((SIDE, SIDE, 1), np.uint8)
    frame[:4] = time
    frame[4 + 8 * action : 12 + 8 * action] = 200
    return frame


class Corridor(gymnasium.Env):
    """An episode of five steps with a reward at its end, which is terminal or a time limit."""

    observation_space, action_space = SPACES

    def __init__(self, truncates: bool = False) -> None:
        self.truncates = truncates
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time = 0
        return picture(0), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.time += 1
        over = self.time == LENGTH
        cut = over and self.truncates
        return picture(self.time, int(action)), float(over), over and not cut, cut, {}


class Sighted(gymnasium.ObservationWrapper):
    """A corridor whose picture is in a dictionary with a number and perhaps a text."""

    def __init__(self, says: bool = False) -> None:
        super().__init__(Corridor())
        self.more: dict[str, Any] = {"text": "go"} if says else {}
        texts = {"text": spaces.Text(9)} if says else {}
        self.observation_space = spaces.Dict(image=SPACES[0], way=spaces.Discrete(4), **texts)

    def observation(self, observation: np.ndarray) -> dict[str, Any]:
        return {"image": observation, "way": 3, **self.more}


def rollout(steps: int = 8, envs: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    """Sample random actions, with the true last observations; environment i begins at time i."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 3, (steps, envs))
    time = (np.arange(steps)[:, None] + np.arange(envs)) % LENGTH
    before = np.concatenate([np.zeros((1, envs), int), actions[:-1]])
    before[time == 0] = 0
    frames = np.vectorize(picture, signature="(),()->(a,b,c)")
    return {
        "observations": frames(time, before),
        "actions": actions,
        "rewards": (time == LENGTH - 1).astype(np.float32),
        "terminateds": time == LENGTH - 1,
        "truncateds": np.zeros((steps, envs), bool),
        "next_observations": frames(time + 1, actions),
    }


def small(bonus: str = "rnd", **settings: Any) -> ssedb.IntrinsicReward:
    """A reward for the corridor with small networks."""
    return ssedb.IntrinsicReward(
        bonus, SPACES, **{"preset": SHORT, "batch_size": 8, "device": "cpu", **settings}
    )


class Clock(Bonus):
    """Reward of the next observation's time; remembers what it was given."""

    rewarded: ClassVar[list[tuple[Tensor, ...]]] = []
    trained: ClassVar[list[Tensor]] = []

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, options: Any) -> None:
        super().__init__(obs_shape, num_actions)
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        self.rewarded.append((time(obs), actions, time(next_obs)))
        return time(next_obs).float()

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.trained.append(time(next_obs))
        return (self.weight - 1).square(), {}


class Diary(Clock):
    """A clock that remembers the episodes of what it was given."""

    uses_context = True
    episodes: ClassVar[list[Tensor]] = []

    def reward(  # type: ignore[override]
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context
    ) -> Tensor:
        self.episodes.append(context.episodes)
        return super().reward(obs, actions, next_obs)


def time(obs: Tensor) -> Tensor:
    """The time that pictures [B, 1, 36, 36] tell."""
    return obs[:, 0, 0, 0].long()


CLOCK = f"{__name__}:Clock"
DIARY = f"{__name__}:Diary"

VECTORS = spaces.Box(-2, 2, (5,), np.float32)
ACTIONS = {
    "one choice": spaces.Discrete(3),
    "choices": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "bits": spaces.MultiBinary(2),
    "continuous": spaces.Box(-1, 1, (2,), np.float32),
}


def weights(reward: ssedb.IntrinsicReward) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in reward.bonus.state_dict().values()])


def same_future(one: ssedb.IntrinsicReward, other: ssedb.IntrinsicReward) -> bool:
    """Whether both answer alike and learn alike, from here on."""
    samples = rollout(seed=5)
    answers = [torch.equal(one.compute(samples), other.compute(samples)) for _ in range(2)]
    return all(answers) and torch.equal(weights(one), weights(other))


def random_samples(observations: spaces.Space, actions: spaces.Space) -> dict[str, np.ndarray]:
    """Samples [4, 3, ...] drawn from spaces."""
    observations.seed(0)
    actions.seed(0)

    def draw(space: spaces.Space) -> np.ndarray:
        return np.array([[space.sample() for _ in range(3)] for _ in range(4)])

    nothing = np.zeros((4, 3), bool)
    return {
        "observations": draw(observations),
        "actions": draw(actions),
        "terminateds": nothing,
        "truncateds": nothing,
        "next_observations": draw(observations),
    }
