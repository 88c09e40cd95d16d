"""Latent Bayesian Surprise against plain NumPy."""

import numpy as np
import pytest
import torch

from ssedb.errors import ConfigError
from tests.bonuses import plain
from tests.bonuses.plain import ACTIONS, array, batch, make, normalized

SMALL = dict(channels=(4, 4, 4), feature_dim=8)


def encoded(encoder, bonus, obs):
    return plain.encoder(encoder, normalized(bonus, obs))


def layers(module, x):
    """Two layers, a leaky ReLU after each."""
    return plain.lrelu(plain.dense(module[2], plain.lrelu(plain.dense(module[0], x))))


def gaussian(x):
    mean, raw = np.split(x, 2, axis=1)
    return mean, plain.softplus(raw) + 1e-4


def beliefs(bonus, obs, actions, next_obs):
    """(mean, std) of the prior and of the posterior."""
    onehot = np.eye(ACTIONS)[actions.numpy()]
    hidden = layers(
        bonus.transition, np.concatenate([encoded(bonus.encoder, bonus, obs), onehot], 1)
    )
    both = np.concatenate([hidden, encoded(bonus.next_encoder, bonus, next_obs)], 1)
    prior = gaussian(plain.dense(bonus.prior, hidden))
    return prior, gaussian(plain.dense(bonus.posterior[1], layers(bonus.posterior[0], both)))


def surprises(prior, posterior):
    return np.array(
        [plain.kl(m, s, pm, ps) for m, s, pm, ps in zip(*posterior, *prior, strict=True)]
    )


def test_lbs_reward_is_the_divergence_of_the_posterior_from_the_prior():
    bonus, data = make("lbs", **SMALL), batch()
    prior, posterior = beliefs(bonus, *data)
    np.testing.assert_allclose(array(bonus.reward(*data)), surprises(prior, posterior), rtol=1e-3)
    np.testing.assert_allclose(array(bonus.features(*data[:2])), prior[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_lbs_loss_is_the_divergence_and_the_error_in_standardised_random_features(masked):
    bonus, (obs, actions, next_obs) = make("lbs", beta=0.3, **SMALL), batch()
    seen = [batch(20, seed=s) for s in (1, 2)]
    for data in seen:
        bonus.observe(*data)
    features = np.concatenate([encoded(bonus.target, bonus, data[2]) for data in seen])
    targets = (encoded(bonus.target, bonus, next_obs) - features.mean(0)) / features.std(0)
    prior, (mean, std) = beliefs(bonus, obs, actions, next_obs)
    mask = torch.arange(12) % 4 != 0
    torch.manual_seed(7)
    loss, metrics = bonus.loss(obs, actions, next_obs, mask if masked else None)
    torch.manual_seed(7)
    told = plain.dense(bonus.head, mean + std * array(torch.randn(12, 8)))
    likelihood = -((targets - told) ** 2 / 2 + np.log(2 * np.pi) / 2).sum(1)
    nats = surprises(prior, (mean, std))
    rows = mask.numpy() if masked else slice(None)
    assert metrics["likelihood"].item() == pytest.approx(likelihood[rows].mean(), rel=1e-3)
    assert metrics["surprise"].item() == pytest.approx(nats[rows].mean(), rel=1e-3)
    assert loss.item() == pytest.approx(0.3 * nats[rows].mean() - likelihood[rows].mean(), rel=1e-3)


def test_lbs_targets_before_any_observation_are_raw_random_features():
    bonus, (_, _, next_obs) = make("lbs", **SMALL), batch()
    np.testing.assert_allclose(
        array(bonus.targets(next_obs)), encoded(bonus.target, bonus, next_obs), rtol=1e-3, atol=1e-4
    )


def test_lbs_loss_trains_all_but_the_random_target():
    bonus, data = make("lbs", **SMALL), batch()
    bonus.loss(*data)[0].backward()
    for name, parameter in bonus.named_parameters():
        assert (parameter.grad is None) == name.startswith("target."), name
        assert parameter.grad is None or parameter.grad.abs().max() > 0, name


def test_lbs_std_of_the_posterior_learns_from_the_prediction():
    bonus, data = make("lbs", beta=0.0, **SMALL), batch()
    bonus.loss(*data)[0].backward()
    assert bonus.posterior[1].weight.grad[8:].abs().max() > 0


def test_lbs_stds_have_a_floor_of_a_ten_thousandth():
    """The prior's std is as small as it gets, and the surprise stays finite."""
    bonus, data = make("lbs", **SMALL), batch()
    with torch.no_grad():
        for layer, low in ((bonus.prior, -200.0), (bonus.posterior[1], 0.0)):
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor([0.0] * 8 + [low] * 8))
    expected = plain.kl(np.zeros(8), np.full(8, np.log(2) + 1e-4), np.zeros(8), np.full(8, 1e-4))
    np.testing.assert_allclose(array(bonus.reward(*data)), [expected] * 12, rtol=1e-4)


def test_lbs_with_a_negative_beta_is_refused():
    with pytest.raises(ConfigError, match="beta=-1: must be 0 or more"):
        make("lbs", beta=-1, **SMALL)
