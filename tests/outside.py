"""Environments and a bonus as a stranger's package would hold them, for tests that load by name."""

import sys
from pathlib import Path

import gymnasium

PACKAGE = '''
import os
import time

import gymnasium
import numpy as np


class Walker(gymnasium.Env):
    """A bright stripe walks over a dark picture; the seed says where it begins."""

    def __init__(self, side=40, speed=1, fails_at=0, lasts=None):
        self.observation_space = gymnasium.spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.speed, self.fails_at, self.lasts = speed, fails_at, lasts

    def picture(self):
        picture = np.zeros(self.observation_space.shape, np.uint8)
        picture[:, self.place % picture.shape[1]] = 200
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.age = int(self.np_random.integers(1000)), 0
        self.length = self.lasts or 5 + self.place % 3
        return self.picture(), {}

    def step(self, action):
        self.place += self.speed * (2 * int(action) - 1)
        self.age += 1
        if self.age == self.fails_at:
            raise ZeroDivisionError("the stripe\\nfell over")
        return self.picture(), float(self.place % 3), self.age == self.length, False, {}


class Stuck(Walker):
    """Stops answering, or dies, in its fourth step."""

    def __init__(self, dies=False):
        super().__init__()
        self.dies = dies

    def step(self, action):
        if self.age == 3:
            os._exit(3) if self.dies else time.sleep(1000)
        return super().step(action)


class Slow(Walker):
    """Takes 10 ms for a step."""

    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


class Shared(Walker):
    """All of them draw on one canvas, which close() takes away from all."""

    canvas = None

    def __init__(self):
        super().__init__()
        Shared.canvas = np.zeros((40, 40, 3), np.uint8)

    def picture(self):
        Shared.canvas[:] = super().picture()
        return Shared.canvas.copy()

    def close(self):
        Shared.canvas = None


for cls in (Walker, Stuck, Slow, Shared):
    gymnasium.register(f"{cls.__name__}-v0", cls)
'''

BONUS = '''
import torch

from ssedb.bonuses.base import Bonus


class Column(Bonus):
    """Forgets that a reward is [B]."""

    def __init__(self, obs_shape, num_actions, options):
        super().__init__(obs_shape, num_actions)

    def reward(self, obs, actions, next_obs):
        return torch.ones(len(obs), 1)

    def loss(self, obs, actions, next_obs, mask=None):
        return torch.zeros(()), {}


class Forgetful(Column):
    """Fails after it has rewarded a rollout."""

    def reward(self, obs, actions, next_obs):
        return torch.ones(len(obs))

    def observe(self, obs, actions, next_obs):
        raise ValueError("nothing learned")
'''


def write_package(folder: Path) -> None:
    """Write the modules `strangeworlds` and `strangebonus` into a folder of the import path."""
    (folder / "strangeworlds.py").write_text(PACKAGE, encoding="utf-8")
    (folder / "strangebonus.py").write_text(BONUS, encoding="utf-8")


def forget_package() -> None:
    """Make this process one that has not imported them."""
    for name in ("strangeworlds", "strangebonus"):
        sys.modules.pop(name, None)
    for name in [
        name
        for name, spec in gymnasium.registry.items()
        if "strangeworlds" in str(spec.entry_point)
    ]:
        del gymnasium.registry[name]
