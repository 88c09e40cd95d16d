"""An environment seen through any noise: whose randomness it is, and restoring."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.envs.noisy import NoiseState, NoisyEnv
from ssedb.noises import make_noise, noise_class, noises_over
from tests.toy import Grid

NOISES = [name for name in noises_over("images") if name != "none"]
ON_FRAMES = [name for name in NOISES if noise_class(name).changes_frames()]


@pytest.mark.parametrize("noise", NOISES)
def test_noisy_env_when_restored_continues_exactly(noise):
    env, twin = (NoisyEnv(Grid(num_envs=4), make_noise(noise), seed=5) for _ in range(2))
    for e in (env, twin):
        e.reset()
    env.step(torch.tensor([0, 1, 2, 3]))
    twin.load_state_dict(env.state_dict())
    for _ in range(30):
        first, second = env.step(torch.tensor([3, 2, 1, 0])), twin.step(torch.tensor([3, 2, 1, 0]))
        assert torch.equal(first.frames, second.frames)


@pytest.mark.parametrize("noise", ON_FRAMES)
def test_noise_state_of_colour_frames_draws_by_its_seed(noise):
    frames = torch.zeros(3, 84, 84, 3, dtype=torch.uint8)

    def seen(seed: int, strength: float = 1.0) -> torch.Tensor:
        return NoiseState(make_noise(noise, strength), 3, 4, seed=seed).agent_frames(frames)

    assert seen(1).shape == (3, 84, 84)
    assert torch.equal(seen(1), seen(1))
    assert not torch.equal(seen(1), seen(2))
    assert not torch.equal(seen(1)[0], seen(1)[1])  # each environment has noise of its own
    assert torch.equal(seen(1, strength=0.0), torch.zeros_like(seen(1)))


def test_step_takes_actions_as_an_array_or_a_list():
    for make in (np.asarray, list):
        env = ssedb.make_env("rooms-small", 3, noise="sticky", seed=1)
        env.reset()
        assert env.step(make([0, 1, 2])).frames.shape == (3, 84, 84)


@pytest.mark.parametrize("noise", ["none", *NOISES])
def test_frames_of_a_smaller_world_keep_their_size_under_any_noise(noise):
    env = ssedb.make_env("rooms-tiny", 3, noise=noise, seed=1)
    clean = env.env.world.frames(env.env.state)
    assert clean.shape == (3, 44, 44)
    first = env.reset()
    assert first.shape == clean.shape
    assert torch.equal(first, clean) == (noise not in ON_FRAMES)
    assert env.step(torch.zeros(3, dtype=torch.int64)).frames.shape == clean.shape


def test_last_frames_of_episodes_are_seen_through_the_noise():
    env = NoisyEnv(Grid(num_envs=3, episode=1), make_noise("pixel"))
    env.reset()
    last = env.step(torch.zeros(3, dtype=torch.int64)).final_frames()
    assert len(last[0].unique()) > 50  # a clean frame has two values


def test_noisy_env_refuses_the_state_of_another_version():
    env = NoisyEnv(Grid(num_envs=2), make_noise("clouds"))
    env.reset()
    state = env.state_dict()
    del state["observer"]["memory"]
    with pytest.raises(ValueError, match="another version of ssedb wrote it"):
        env.load_state_dict(state)
