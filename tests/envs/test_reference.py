"""Atari frames, rewards and ends beside Gymnasium's `AtariPreprocessing`, same actions."""

import sys
import types

import ale_py
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import AtariPreprocessing
from scipy.stats import chi2

import ssedb
from tests.envs.pictures import area_mean, pillow_frame

IDS = ("ALE/Breakout-v5", "ALE/MsPacman-v5", "ALE/Gopher-v5")
ROUNDING = 0.5 + 1e-3
"""A mean that lies between two bytes may be rounded to either."""


def resize(picture: np.ndarray, size: tuple[int, int], interpolation: str) -> np.ndarray:
    return picture if size == picture.shape[1::-1] else area_mean(picture)


@pytest.fixture
def preprocessed(monkeypatch):
    """Return a function that makes an environment of Gymnasium's.

    OpenCV, which only shrinks the picture there, is replaced by an exact mean.
    """
    monkeypatch.setitem(sys.modules, "cv2", types.SimpleNamespace(resize=resize, INTER_AREA="area"))
    gymnasium.register_envs(ale_py)

    def make(env_id: str, **settings):
        env = gymnasium.make(
            env_id, frameskip=1, repeat_action_probability=0.0, max_num_frames_per_episode=4 * 4500
        )
        return AtariPreprocessing(env, noop_max=0, frame_skip=4, **settings)

    return make


def play_beside(env, twins, compare, steps):
    """Play our environments and Gymnasium's with the same actions; return the number of ends."""
    rng, ends = np.random.default_rng(0), 0
    for frame, twin in zip(env.reset(), twins, strict=True):
        compare(frame.numpy(), twin.reset()[0])
    for _ in range(steps):
        actions = rng.integers(env.num_actions, size=len(twins))
        step = env.step(torch.from_numpy(actions))
        for i, twin in enumerate(twins):
            frame, reward, terminated, truncated, _ = twin.step(int(actions[i]))
            assert step.rewards[i] == reward
            assert step.dones[i] == (terminated or truncated)
            if step.dones[i]:
                ends += 1
                compare(step.final_frames()[i].numpy(), frame)
                frame, _ = twin.reset()
            compare(step.frames[i].numpy(), frame)
    env.close()
    return ends


@pytest.mark.parametrize("env_id", IDS)
def test_frames_rewards_and_ends_match_gymnasium(env_id, preprocessed):
    env = ssedb.make_env(env_id, 2, noop_max=0)
    twins = [preprocessed(env_id, scale_obs=True) for _ in range(2)]

    def compare(ours, theirs):  # scaled ones, because those are not rounded
        assert np.abs(ours - 255.0 * theirs).max() <= ROUNDING

    breakout = env_id == "ALE/Breakout-v5"  # five balls are soon lost
    ends = play_beside(env, twins, compare, steps=250 if breakout else 80)
    assert ends > 0 or not breakout


@pytest.mark.parametrize(
    ("env_id", "noise"), [*zip(IDS, ["random-box", "pixel", "pixel"], strict=True)]
)
def test_frames_below_raw_noise_match_gymnasiums_shrunk(env_id, noise, preprocessed):
    env = ssedb.make_env(env_id, 1, noop_max=0, noise=noise, strength=0.0, fidelity="released")
    twin = preprocessed(env_id, grayscale_obs=False, screen_size=(160, 210))

    def compare(ours, theirs):
        assert np.abs(ours - pillow_frame(theirs).astype(int)).max() <= 1

    play_beside(env, [twin], compare, steps=50)


def first_frames(game: str, noop_max: int) -> torch.Tensor:
    """The first frames of 40 episodes."""
    env = ssedb.make_env(game, 4, noop_max=noop_max, max_episode_steps=1)
    frames = [env.reset()]
    frames += [
        env.step(torch.zeros(4, dtype=torch.int64)).frames for _ in range(9)
    ]  # each step is an episode
    env.close()
    return torch.cat(frames)


@pytest.mark.parametrize(
    ("game", "noop_max", "classes"),
    [
        ("Gopher", 1, [[0], [1]]),
        ("Boxing", 4, [[0, 1], [2], [3], [4]]),  # its picture does not change in the first frame
    ],
)
def test_episode_begins_after_0_to_noop_max_no_ops(game, noop_max, classes):
    gymnasium.register_envs(ale_py)
    emulator = gymnasium.make(
        f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0
    ).unwrapped
    emulator.reset()
    pictures = []
    for _ in range(noop_max + 1):
        pictures.append(area_mean(emulator.ale.getScreenGrayscale()))
        emulator.step(0)
    differences = np.abs(first_frames(game, noop_max).numpy()[:, None] - np.stack(pictures)).max(
        (2, 3)
    )  # [N, no-ops]
    assert (
        differences.min(1) <= ROUNDING
    ).all()  # so many no-ops at most, and nothing else was done
    found = np.array([np.isin(differences.argmin(1), numbers).sum() for numbers in classes])
    expected = np.array([len(differences) * len(numbers) / (noop_max + 1) for numbers in classes])
    # Uniform: chance alone exceeds the bound once in a million.
    assert ((found - expected) ** 2 / expected).sum() <= chi2.isf(1e-6, len(classes) - 1)
