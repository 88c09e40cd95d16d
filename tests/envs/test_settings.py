"""Every noise, in both variants, from the settings down to the frames that training gets."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import ale_py
import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import ssedb
from ssedb.collect.rollout import STACK
from ssedb.envs.base import Env
from ssedb.trainer import Trainer
from tests.envs.pictures import area_mean, pillow_frame
from tests.toy import tiny_config

NOOP, FIRE, RIGHT, LEFT = range(4)  # of Breakout
ENVS = 2
BOUND = 5.0
"""Standard errors: beyond them lies one normal draw in 1.7 million."""


def by_config(noise: str, strength: float = 1.0, **settings) -> tuple[Env, Tensor]:
    """The environment that a run trains in, and its first frames."""
    settings = {
        "env": "breakout",
        "num_envs": ENVS,
        "minibatch_envs": ENVS,
        "noise": noise,
        "noise_strength": strength,
        **settings,
    }
    trainer = Trainer(tiny_config("unused", **settings))
    return trainer.env, trainer.rollout.frames[STACK - 1]


def by_make_env(
    noise: str, strength: float = 1.0, env: str = "breakout", **settings
) -> tuple[Env, Tensor]:
    """The environment that a user makes, and its first frames."""
    made = ssedb.make_env(env, ENVS, noise=noise, strength=strength, **settings)
    return made, made.reset()


BOTH = pytest.mark.parametrize("make", [by_config, by_make_env])


def play(made: tuple[Env, Tensor], actions: list[int]) -> np.ndarray:
    """The frames [1 + steps, N, 84, 84] when all environments take the same actions."""
    env, first = made
    frames = [first, *(env.step(torch.full((ENVS,), action)).frames for action in actions)]
    env.close()
    return torch.stack(frames).numpy()


@cache
def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Breakout before the ball is served, uint8 [210, 160, 3], and the emulator's gray 84x84 of it.

    The picture stays as long as nothing is done.
    """
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path("breakout"))
    return ale.getScreenRGB(), np.rint(area_mean(ale.getScreenGrayscale())).astype(np.uint8)


def some_boxes(
    frame: np.ndarray, rng: np.random.Generator, height: int, width: int, draw: Callable
) -> np.ndarray:
    noisy = frame.copy()
    for cell in rng.choice(80, rng.integers(3, 13), replace=False):
        top, left = height * (cell // 8), width * (cell % 8)
        box = noisy[top : top + height, left : left + width]
        box[:] = draw(box.astype(np.int64))
    return noisy


def filled_boxes(rng, strength):
    """docs/fidelity.md, variant `fill` of `random-box`."""

    def draw(old):
        weight = min(strength, 1.0)
        return (
            ((1 - weight) * old + weight * rng.normal(127.5, 76.5, old.shape))
            .clip(0, 255)
            .astype(np.uint8)
        )

    return some_boxes(pictures()[1], rng, 8, 10, draw)


def wrapped_boxes(rng, strength):
    """Variant `wrap` of `random-box`."""

    def draw(old):
        return ((old + rng.normal(0, 76.5 * strength, old.shape).astype(np.int64)) % 256).astype(
            np.uint8
        )

    return pillow_frame(some_boxes(pictures()[0], rng, 20, 20, draw))


def added_pixels(rng, strength):
    """Variant `add` of `pixel`."""
    return (pictures()[1] + rng.normal(0, 80 * strength, (84, 84))).clip(0, 255).astype(np.uint8)


def pixels_at_zeros(rng, strength):
    """Variant `zeros` of `pixel`."""
    raw, _ = pictures()
    noise = np.maximum(rng.normal(0, 80 * strength, raw.shape), 0).astype(np.int64) % 256
    return pillow_frame(np.where(raw == 0, noise, raw).astype(np.uint8))


def flickering(rng, strength):
    light = np.kron(rng.normal(0, 60 * strength, (4, 4)), np.ones((21, 21)))
    return (pictures()[1] + light).clip(0, 255).astype(np.uint8)


def statistics(frames: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Return what tells noises apart, [frames, 8].

    Share and size of changes, black, white, likeness of neighbours.
    """
    d = frames.astype(np.float64) - clean
    columns = [
        d,
        np.abs(d),
        d * d,
        d != 0,
        frames == 0,
        frames == 255,
        d[:, :, 1:] * d[:, :, :-1],
        d[:, 1:] * d[:, :-1],
    ]
    return np.stack([column.mean((1, 2)) for column in columns], 1)


@pytest.mark.parametrize(
    ("make", "noise", "fidelity", "strength", "model"),
    [
        (by_config, "random-box", "paper", 1.0, filled_boxes),
        (by_config, "random-box", "released", 0.5, wrapped_boxes),
        (by_config, "pixel", "paper", 0.5, added_pixels),
        (by_config, "pixel", "released", 3.0, pixels_at_zeros),
        (by_config, "flicker", "released", 0.5, flickering),
        (by_make_env, "random-box", "ours", 0.5, filled_boxes),
        (by_make_env, "random-box", "released", 1.0, wrapped_boxes),
        (by_make_env, "pixel", "ours", 1.0, added_pixels),
        (by_make_env, "pixel", "released", 1.0, pixels_at_zeros),
        (by_make_env, "flicker", "paper", 1.0, flickering),
    ],
)
def test_frames_carry_the_noise_of_the_settings(make, noise, fidelity, strength, model):
    raw, small = pictures()
    clean = pillow_frame(raw) if model in (wrapped_boxes, pixels_at_zeros) else small
    frames = play(make(noise, strength, fidelity=fidelity), [NOOP] * 49).reshape(-1, 84, 84)
    assert len(np.unique(frames.reshape(len(frames), -1), axis=0)) == len(
        frames
    )  # none has another's noise
    rng = np.random.default_rng(0)
    found = statistics(frames, clean)
    expected = statistics(np.stack([model(rng, strength) for _ in range(150)]), clean)
    error = np.sqrt(found.var(0) / len(found) + expected.var(0) / len(expected))
    z = (found.mean(0) - expected.mean(0)) / np.maximum(error, 1e-9)
    assert np.abs(z).max() < BOUND, z


@BOTH
@pytest.mark.parametrize("noise", ["random-box", "pixel", "flicker", "noisy-tv", "clouds"])
def test_frames_at_strength_0_are_unchanged(make, noise):
    clean, frames = (
        play(make(name, 0.0, env="rooms-small"), [1, 3, 4]) for name in ("none", noise)
    )
    assert (frames == clean).all()


def test_variant_may_be_named_against_the_fidelity():
    raw, small = pictures()
    boxes = play(
        by_config("random-box", fidelity="released", noise_variant="fill"), [NOOP] * 8
    ).reshape(-1, 84, 84)
    touched = (np.abs(boxes - small.astype(int)) > 1).any(0)
    assert (touched.any(), touched[80:].any(), touched[:, 80:].any()) == (
        True,
        False,
        False,
    )  # 10x8 cells of 8x10 pixels
    pixels = play(
        by_make_env("pixel", fidelity="paper", noise_variant="zeros"), [NOOP] * 3
    ).reshape(-1, 84, 84)
    bright = (
        pillow_frame(np.where(raw == 0, 0, 255).astype(np.uint8)) == 255
    )  # no channel is 0 below
    assert bright.sum() > 100
    assert np.abs(pixels[:, bright] - pillow_frame(raw).astype(int)[bright]).max() <= 1


@pytest.mark.parametrize(("make", "fidelity"), [(by_config, "paper"), (by_make_env, "released")])
def test_tv_of_each_environment_changes_with_the_last_action_and_at_a_reset(make, fidelity):
    _, small = pictures()
    env, first = make("noisy-tv", fidelity=fidelity)
    frames = [first.clone()]
    frames += [
        env.step(torch.full((ENVS,), action)).frames for action in (NOOP, NOOP, LEFT, NOOP)
    ]  # LEFT is the last
    frames = torch.stack([*frames, env.reset()]).numpy()
    env.close()
    screens = frames[:, :, 56:, 56:]
    assert np.abs(frames[:3, :, :56] - small[:56].astype(int)).max() <= 1
    assert np.abs(frames[:3, :, :, :56] - small[:, :56].astype(int)).max() <= 1
    assert [(a == b).all((1, 2)).sum() for a, b in pairwise(screens)] == [ENVS, ENVS, 0, ENVS, 0]
    assert len(np.unique(screens[0].reshape(ENVS, -1), axis=0)) == ENVS
    counts = np.bincount(screens[0].ravel() // 16, minlength=16)
    expected = screens[0].size / 16
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(
        1e-6, 15
    )  # uniform, but for one chance in a million


@pytest.mark.parametrize(
    ("make", "fidelity", "strength"), [(by_config, "released", 0.5), (by_make_env, "paper", 1.0)]
)
def test_clouds_of_each_environment_brighten_and_drift(make, fidelity, strength):
    _, small = pictures()
    frames = play(make("clouds", strength, fidelity=fidelity), [NOOP] * 10).astype(int)
    light = frames - small.astype(int)  # [11, N, 84, 84]
    assert light.min() >= -1
    assert len(np.unique(frames[0].reshape(ENVS, -1), axis=0)) == ENVS
    # Six clouds of 160 exp(-d^2 / (2 * 0.08^2)); bytes lose half a step, and some are full.
    assert 0.8 <= light.mean() / (6 * 160 * strength * 2 * np.pi * 0.08**2) <= 1
    moved = np.abs(np.diff(light, axis=0)).mean((1, 2, 3))
    assert (moved > 0).all()
    assert (
        moved.mean() < 0.5 * np.abs(light[0] - light[0][::-1]).mean()
    )  # far less than to another environment's


def test_sticky_by_step_repeats_until_the_episode_ends_or_a_reset():
    """At strength 4 an action is always repeated: only the first of each episode is executed."""
    settings = dict(noop_max=0, max_episode_steps=6)
    env, clean = by_config("sticky", 4.0, **settings)[0], by_make_env("none", **settings)[0]
    for _ in range(2):  # the second time after a reset in the middle of an episode of LEFT
        assert torch.equal(env.reset(), clean.reset())
        for t, executed in enumerate([RIGHT] * 6 + [LEFT] * 3):
            seen = env.step(torch.full((ENVS,), LEFT if t else RIGHT)).frames
            assert torch.equal(seen, clean.step(torch.full((ENVS,), executed)).frames)
    env.close()
    clean.close()


@pytest.mark.parametrize(
    ("make", "strength", "executed"), [(by_make_env, 0.0, 3), (by_config, 4.0, NOOP)]
)
def test_sticky_by_frame_has_its_strength_and_no_no_ops(make, strength, executed):
    """Of Boxing, whose picture shows every no-op. Where all is repeated, nothing is ever done."""
    seen = play(make("sticky", strength, env="boxing", fidelity="released"), [3] * 10)
    assert (seen == play(by_make_env("none", env="boxing", noop_max=0), [executed] * 10)).all()
