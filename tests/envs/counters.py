"""A small Gymnasium environment in the shapes that others have, and 25 steps of walkers."""

import gymnasium
import numpy as np
import torch

import ssedb


class Counter(gymnasium.Env):
    """Shows its step number as brightness; three actions numbered from 5; ends after 6 steps."""

    def __init__(self, channels=3, dtype=np.uint8):
        shape = (50, 40, channels) if channels else (50, 40)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(3, start=5)

    def picture(self):
        return np.full(self.observation_space.shape, 10 * self.count, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.picture(), {}

    def step(self, action):
        assert action in (5, 6, 7)
        self.count += 1
        return self.picture(), float(action), self.count == 6, False, {}


for name, kwargs in {
    "Rgb": {},
    "Gray": {"channels": 0},
    "One": {"channels": 1},
    "Float": {"dtype": np.float32},
}.items():
    gymnasium.register(f"Counter{name}-v0", Counter, kwargs=kwargs)

gymnasium.register("CounterShort-v0", Counter, max_episode_steps=4)


def episodes(workers, noise="pixel", **settings):
    """Return all that 5 walkers show and earn in 25 steps."""
    env = ssedb.make_env(
        "strangeworlds:Walker-v0", 5, seed=3, noise=noise, env_workers=workers, **settings
    )
    generator = torch.Generator().manual_seed(0)
    seen = [env.reset().clone()]
    ends = 0
    for _ in range(25):
        step = env.step(torch.randint(2, (5,), generator=generator))
        ends += int(step.dones.sum())
        seen += [
            step.frames,
            step.rewards,
            step.dones,
            *([step.final_frames()] if step.final_frames else []),
        ]
    env.close()
    assert ends >= 10
    return seen
