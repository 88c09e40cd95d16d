"""Other Gymnasium environments, through a small one of our own."""

import gymnasium
import numpy as np
import pytest
import torch

import ssedb


class Counter(gymnasium.Env):
    """Shows how many steps it has made as brightness; three actions numbered from 5; ends after 6 steps."""

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


for name, kwargs in {"Rgb": {}, "Gray": {"channels": 0}, "One": {"channels": 1}, "Float": {"dtype": np.float32}}.items():
    gymnasium.register(f"Counter{name}-v0", Counter, kwargs=kwargs)
gymnasium.register("CounterShort-v0", Counter, max_episode_steps=4)


@pytest.mark.parametrize("name", ["CounterRgb-v0", "CounterGray-v0", "CounterOne-v0"])
def test_any_image_environment_works(name):
    env = ssedb.make_env(name, num_envs=3)
    assert env.num_actions == 3
    assert (env.reset() == 0).all()
    for t in range(1, 7):
        step = env.step(torch.tensor([0, 1, 2]))
        assert step.rewards.tolist() == [5, 6, 7]
        assert step.dones.all() == (t == 6)
        assert (step.frames == (10 * t if t < 6 else 0)).all()
    assert (step.final_frames() == 60).all()
    env.close()


@pytest.mark.parametrize(("limit", "length"), [(3, 3), (100, 4)])
def test_an_episode_ends_at_the_shorter_limit(limit, length):
    env = ssedb.make_env("CounterShort-v0", 2, max_episode_steps=limit)
    env.reset()
    dones = [env.step(torch.zeros(2, dtype=torch.int64)).dones.all().item() for _ in range(length)]
    assert dones == [False] * (length - 1) + [True]
    env.close()


def test_noise_and_training_work_there_too(tmp_path):
    from tests.toy import tiny_config

    config = tiny_config(tmp_path / "run", env="CounterRgb-v0", noise="pixel", steps=256, obs_norm_steps=64)
    result = ssedb.train(config)
    assert result.summary["score"] > 0


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("CartPole-v1", {}, "needs uint8 images"),
        ("CounterFloat-v0", {}, "needs uint8 images"),
        ("CounterRgb-v0", {"noise": "sticky", "sticky": "frame"}, "use sticky='step'"),
        ("nowhere:Nothing-v0", {}, "Gymnasium cannot make"),
    ],
)
def test_what_does_not_fit_is_said(name, settings, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        ssedb.make_env(name, 1, **settings)
