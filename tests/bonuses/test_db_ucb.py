"""DB-UCB and DB-BeBold against dense linear algebra over all past features."""

import numpy as np
import pytest
import torch

from tests.bonuses import plain
from tests.bonuses.plain import ACTIONS, array, batch, gain, make
from tests.toy import TINY_OPTIONS

TINY = {**TINY_OPTIONS, "latent_dim": 6, "state_dim": 10, "channels": (4, 4, 4)}


@pytest.mark.parametrize("ridge", [1.0, 0.3])
def test_db_ucb_reward_is_the_information_gain_given_all_observed_pairs(ridge):
    bonus, data = make("db-ucb", ridge=ridge, **TINY), batch()
    eta, past = plain.posterior(bonus, *data[:2])[0], np.zeros((0, 6))
    np.testing.assert_allclose(array(bonus.reward(*data)), gain(eta, past, ridge), rtol=1e-3)
    for seed in (1, 2, 3):
        seen = batch(20, seed=seed)
        bonus.observe(*seen)
        past = np.concatenate([past, plain.posterior(bonus, *seen[:2])[0]])
        np.testing.assert_allclose(array(bonus.reward(*data)), gain(eta, past, ridge), rtol=2e-3)
    np.testing.assert_allclose(array(bonus.features(*data[:2])), eta, rtol=1e-3, atol=1e-5)


def test_db_ucb_inverse_over_long_experience_stays_exact():
    bonus = make("db-ucb", **TINY)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        bonus.add(3 * torch.randn(64, 6, generator=generator) * torch.tensor([1, 1, 1, 1, 1, 1e-3]))
    product = bonus.precision.numpy() @ array(bonus.covariance)
    np.testing.assert_allclose(product, np.eye(6), atol=1e-3)


def test_db_ucb_sums_are_kept_in_float64():
    # In float32 the small direction would be lost beside the large (a GPU would even use TF32).
    bonus = make("db-ucb", **TINY)
    eta = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) + 300 * torch.tensor(
        [1.0, -1, 1, -1, 1, -1]
    )
    bonus.add(eta)
    rows = array(eta)
    np.testing.assert_allclose(bonus.precision.numpy(), np.eye(6) + rows.T @ rows, rtol=1e-12)
    expected = np.linalg.inv(np.eye(6) + rows.T @ rows)
    np.testing.assert_allclose(array(bonus.covariance), expected, rtol=1e-5, atol=1e-9)


def state(bonus, obs):
    """A state is the mean over the choices it offers."""
    choices = [plain.posterior(bonus, obs, torch.full((len(obs),), a))[0] for a in range(ACTIONS)]
    return sum(choices) / ACTIONS


@pytest.mark.parametrize("regulation", [0.5, 0.9])
def test_bebold_on_a_rise_in_novelty_rewards_the_rise(regulation):
    bonus, (obs, actions, next_obs) = make("db-bebold", regulation=regulation, **TINY), batch(40)
    past = np.zeros((0, 6))
    for seed in (None, 1, 2):
        if seed is not None:
            seen = batch(20, seed=seed)
            bonus.observe(*seen)
            past = np.concatenate([past, state(bonus, seen[0])])
        rise = gain(state(bonus, next_obs), past, 1.0) - regulation * gain(
            state(bonus, obs), past, 1.0
        )
        np.testing.assert_allclose(
            array(bonus.reward(obs, actions, next_obs)), np.maximum(rise, 0), rtol=5e-3, atol=1e-4
        )


def test_bebold_on_a_fall_in_novelty_rewards_nothing():
    bonus, (obs, actions, next_obs) = make("db-bebold", regulation=1.0, **TINY), batch(40)
    rewards = bonus.reward(obs, actions, next_obs)
    back = bonus.reward(next_obs, actions, obs)
    assert (rewards >= 0).all()
    assert 0 < (rewards == 0).sum() < 40
    assert ((rewards > 0) ^ (back > 0)).all()  # one way up, the other down
