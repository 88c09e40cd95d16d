"""DB-marginal against a double loop, and against the divergence it bounds."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from tests.bonuses import plain
from tests.bonuses.plain import array, batch, make
from tests.toy import TINY_OPTIONS

TINY = {**TINY_OPTIONS, "latent_dim": 6, "channels": (4, 4, 4)}


@pytest.mark.parametrize("root", ["sqrt", "none"])
def test_reward_is_minus_the_log_of_the_mean_likeness(root):
    bonus, data = make("db-marginal", bonus_root=root, **TINY), batch(20)
    mean, std = plain.posterior(bonus, *data[:2])
    expected = []
    for i in range(20):
        likeness = [math.exp(-plain.kl(mean[i], std[i], mean[j], std[j])) for j in range(20)]
        expected.append(-math.log(sum(likeness) / 20))
    expected = np.sqrt(expected) if root == "sqrt" else expected
    np.testing.assert_allclose(array(bonus.reward(*data)), expected, rtol=1e-3, atol=1e-3)


def test_it_bounds_the_divergence_from_the_batchs_mixture_and_is_near_it_where_posteriors_are_apart():
    bonus, data = make("db-marginal", bonus_root="none", **TINY), batch(20)
    generator = torch.Generator().manual_seed(0)
    for spread, slack in ((0.3, None), (30.0, 0.05)):
        mean, std = (
            spread * torch.randn(20, 6, generator=generator),
            0.5 + torch.rand(20, 6, generator=generator),
        )
        bonus.represent = lambda obs, actions, mean=mean, std=std: (mean, std)
        bound = bonus.reward(*data)
        mixture = MixtureSameFamily(Categorical(torch.ones(20)), Independent(Normal(mean, std), 1))
        torch.manual_seed(0)
        samples = mean + std * torch.randn(4000, 20, 6)
        log_q = Independent(Normal(mean, std), 1).log_prob(samples)
        divergence = (log_q - mixture.log_prob(samples)).mean(0)  # Monte Carlo, error about 0.02
        assert (bound >= divergence - 0.06).all()
        assert bound.max() <= math.log(20) + 1e-5
        if slack is not None:
            torch.testing.assert_close(bound, divergence, atol=slack, rtol=0)


def test_equal_posteriors_are_worth_nothing_and_one_that_stands_out_the_most():
    bonus, data = make("db-marginal", **TINY), batch(20)
    mean = torch.zeros(20, 6)
    bonus.represent = lambda obs, actions: (mean, torch.ones(20, 6))
    assert bonus.reward(*data).max() < 1e-3
    mean[7] = 100.0
    reward = bonus.reward(*data)
    assert reward[7].item() == pytest.approx(math.log(20) ** 0.5, rel=1e-5)
    torch.testing.assert_close(reward[0], torch.tensor(math.log(20 / 19)).sqrt())
