"""Observations as a bonus takes them, and their statistics."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

import ssedb

from .corridor import ACTIONS, VECTORS, random_samples, rollout, small, weights


def test_first_samples_fix_the_observation_statistics():
    reward = small()
    samples = rollout()
    reward.compute(samples)
    frames = samples["observations"].reshape(24, 36, 36).astype(float)
    normalize = reward.bonus.normalize
    assert torch.allclose(normalize.mean[0, 0], torch.as_tensor(frames.mean(0)).float())
    assert normalize.std == pytest.approx(frames.std(0).mean())
    before = normalize.mean.clone()
    reward.compute(rollout(seed=1))
    assert torch.equal(normalize.mean, before)


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


@pytest.mark.parametrize("name", ["observations", "actions", "next_observations"])
def test_nan_in_samples_is_named_before_anything_learns(name):
    vectors = (spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,)))
    samples = random_samples(*vectors)
    reward = ssedb.IntrinsicReward("db", vectors, preset="rooms", device="cpu")
    reward.compute(samples)
    before = weights(reward)
    samples[name] = samples[name].copy()
    samples[name][1, 0] = np.nan
    with pytest.raises(ssedb.ConfigError, match=f"{name} with NaN"):
        reward.compute(samples)
    assert torch.equal(weights(reward), before)
