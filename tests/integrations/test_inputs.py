"""Observations as a bonus takes them, and their statistics."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

import ssedb

from .corridor import ACTIONS, CLOCK, VECTORS, random_samples, rollout, small, weights


def test_first_samples_fix_the_observation_statistics():
    reward = small(CLOCK)
    samples = rollout(128, 8)
    reward.compute(samples)
    frames = samples["observations"].reshape(1024, 36, 36).astype(float)
    normalize = reward.bonus.normalize
    assert torch.allclose(normalize.mean[0, 0], torch.as_tensor(frames.mean(0)).float())
    assert normalize.std == pytest.approx(frames.std(0).mean())
    before = normalize.mean.clone()
    reward.compute(rollout(envs=8, seed=1))
    assert torch.equal(normalize.mean, before)


def vectors(steps: int, envs: int) -> dict[str, np.ndarray]:
    """Samples [steps, envs] of observations that drift, as in an episode."""
    drift = np.cumsum(np.random.default_rng(0).standard_normal((steps + 1, envs, 5)), 0)
    obs = drift.astype(np.float32)
    no = np.zeros((steps, envs), bool)
    return {
        "observations": obs[:-1],
        "actions": np.zeros((steps, envs), int),
        "terminateds": no,
        "truncateds": no,
        "next_observations": obs[1:],
    }


@pytest.mark.parametrize(("length", "envs", "steps"), [(5, 4, 256), (1, 16, 128), (256, 4, 256)])
def test_observation_statistics_are_of_all_rollouts_until_enough_are_in(length, envs, steps):
    reward = ssedb.IntrinsicReward("rnd", (VECTORS, ACTIONS["one choice"]), preset="rooms")
    samples = vectors(300, envs)
    normalize = reward.bonus.normalize
    for begin in range(0, 300 - length + 1, length):
        part = {name: value[begin : begin + length] for name, value in samples.items()}
        reward.compute(part)
        seen = min(begin + length, -(-steps // length) * length)
        obs = torch.as_tensor(samples["observations"][:seen]).flatten(0, 1)
        assert torch.allclose(normalize.std, obs.std(0, correction=0), rtol=1e-4)
        assert torch.allclose(normalize.mean[0], obs.mean(0), atol=1e-4)


def test_observation_statistics_saved_and_loaded_continue():
    one, other = (
        ssedb.IntrinsicReward("rnd", (VECTORS, ACTIONS["one choice"]), preset="rooms", seed=seed)
        for seed in (0, 1)
    )
    first, second, third = (vectors(steps, 8) for steps in (64, 64, 32))
    one.compute(first)
    other.load_state_dict(one.state_dict())
    for samples in (second, third):
        assert torch.equal(one.compute(samples), other.compute(samples))
        assert torch.equal(weights(one), weights(other))


def test_first_samples_that_are_all_alike_do_not_blow_up_what_comes_later():
    reward = small()
    samples = rollout()
    samples["observations"][:] = 7
    reward.compute(samples)
    assert reward.bonus.normalize.std == 1


def test_fit_obs_false_leaves_observations_as_they_are():
    reward = small(fit_obs=False)
    reward.compute(rollout())
    assert reward.bonus.normalize.std == 255
    assert (reward.bonus.normalize.mean == 0).all()


def test_every_dimension_of_vectors_has_its_own_scale():
    reward = ssedb.IntrinsicReward("rnd", (VECTORS, ACTIONS["one choice"]), preset="rooms")
    samples = random_samples(VECTORS, ACTIONS["one choice"])
    samples["observations"][..., 1] *= 100
    reward.compute(samples)
    flat = torch.as_tensor(samples["observations"]).flatten(0, 1)
    assert torch.allclose(reward.bonus.normalize.std, flat.std(0, correction=0), rtol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
@pytest.mark.parametrize("name", ["observations", "actions", "next_observations"])
def test_nan_in_samples_is_named_before_anything_learns(name, value):
    vectors = (spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,)))
    samples = random_samples(*vectors)
    reward = ssedb.IntrinsicReward("db", vectors, preset="rooms", device="cpu")
    reward.compute(samples)
    before = weights(reward)
    samples[name] = samples[name].astype(np.float64)
    samples[name][1, 0] = value
    with pytest.raises(ssedb.ConfigError, match=f"{name} with NaN"):
        reward.compute(samples)
    assert torch.equal(weights(reward), before)


def test_only_observations_without_any_number_are_refused():
    empty, actions = spaces.Box(0, 1, (0,)), spaces.Discrete(2)
    with pytest.raises(ssedb.ConfigError, match="no number to see in them"):
        ssedb.IntrinsicReward("rnd", (empty, actions))
    partly = spaces.Dict(a=empty, b=spaces.Discrete(3))
    assert ssedb.IntrinsicReward("rnd", (partly, actions)).inputs.shape == (3,)
