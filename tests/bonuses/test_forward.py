"""ICM, random features and Disagreement: forward models over features, against plain NumPy."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.networks import ForwardModels
from tests.bonuses import plain
from tests.bonuses.plain import array, batch, encoded, make

SMALL = dict(channels=(4, 4, 4), feature_dim=8)


def forward_errors(bonus, models, obs, actions, next_obs, number=0):
    predicted = plain.forward_model(models, number, encoded(bonus, obs), actions)
    return ((predicted - encoded(bonus, next_obs)) ** 2).sum(1) / 8


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_forward_bonuses_have_the_papers_parameter_counts():
    icm = ssedb.make_bonus("icm", (4, 84, 84), 4)
    assert count(icm.encoder) + count(icm.inverse) == 2_210_980
    assert count(icm.forward_model) == 2_647_040
    assert count(icm) == 2_210_980 + 2_647_040
    disagreement = ssedb.make_bonus("disagreement", (4, 84, 84), 4)
    assert count(disagreement.ensemble) == 26_470_400
    assert sum(p.numel() for p in disagreement.parameters() if p.requires_grad) == 26_470_400


def test_forward_models_match_a_loop_over_single_ones():
    torch.manual_seed(0)
    models = ForwardModels(3, 8, 5)
    torch.nn.init.uniform_(models.bias, -0.5, 0.5)
    features, actions = torch.randn(6, 8), torch.tensor([0, 4, 1, 1, 3, 2])
    together = models(features, actions)
    assert together.shape == (3, 6, 8)
    for number in range(3):
        alone = plain.forward_model(models, number, array(features), actions)
        np.testing.assert_allclose(array(together[number]), alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_forward_models_begin_with_glorot_weights():
    models, bound = ForwardModels(2, 32, 4), (6 / (32 + 4 + 32)) ** 0.5
    for weight in (models.weight, models.action_weight):
        assert 0.95 * bound < weight.abs().max() <= bound
        assert abs(weight.mean()) < 0.1 * bound
    assert models.bias.abs().max() == 0


@pytest.mark.parametrize("name", ["icm", "random-features"])
def test_forward_reward_is_the_mean_squared_error_of_the_forward_model(name):
    bonus, data = make(name, **SMALL), batch()
    np.testing.assert_allclose(
        array(bonus.reward(*data)), forward_errors(bonus, bonus.forward_model, *data), rtol=1e-3
    )
    np.testing.assert_allclose(
        array(bonus.features(*data[:2])), encoded(bonus, data[0]), rtol=1e-3, atol=1e-4
    )


def test_icm_loss_is_the_inverse_models_and_the_forward_models():
    bonus, (obs, actions, next_obs) = make("icm", **SMALL), batch()
    mask = torch.arange(len(obs)) % 3 != 1
    both = np.concatenate([encoded(bonus, obs), encoded(bonus, next_obs)], 1)
    logits = plain.dense(bonus.inverse[2], np.maximum(plain.dense(bonus.inverse[0], both), 0))
    surprise = [
        np.log(np.exp(row).sum()) - row[a] for row, a in zip(logits, actions.tolist(), strict=True)
    ]
    errors = forward_errors(bonus, bonus.forward_model, obs, actions, next_obs)
    for rows, given in ((np.ones(len(obs), bool), None), (mask.numpy(), mask)):
        loss, metrics = bonus.loss(obs, actions, next_obs, given)
        assert metrics["inverse_loss"].item() == pytest.approx(
            np.array(surprise)[rows].mean(), rel=1e-4
        )
        assert metrics["forward_loss"].item() == pytest.approx(errors[rows].mean(), rel=1e-3)
        assert loss.item() == pytest.approx(
            np.array(surprise)[rows].mean() + errors[rows].mean(), rel=1e-3
        )


def test_icm_features_are_trained_by_the_inverse_model_alone():
    bonus, (obs, actions, next_obs) = make("icm", **SMALL), batch()
    parameters = list(bonus.encoder.parameters())
    loss, _ = bonus.loss(obs, actions, next_obs)
    whole = torch.autograd.grad(loss, parameters)
    now, later = (bonus.encoder(bonus.normalize(x)) for x in (obs, next_obs))
    inverse = torch.nn.functional.cross_entropy(bonus.inverse(torch.cat([now, later], 1)), actions)
    for a, b in zip(whole, torch.autograd.grad(inverse, parameters), strict=True):
        torch.testing.assert_close(a, b)
        assert a.abs().max() > 0


def test_random_features_is_icm_with_that_option():
    one, other = make("random-features", **SMALL), make("icm", features="random", **SMALL)
    assert one.fixed == other.fixed == ("encoder",)
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    with pytest.raises(ssedb.ConfigError, match="features='inverse': use random"):
        make("random-features", features="inverse", **SMALL)


def test_random_features_loss_is_the_mean_reward_and_trains_the_forward_model_alone():
    bonus, data = make("random-features", **SMALL), batch()
    mask = torch.arange(12) % 2 == 0
    expected = forward_errors(bonus, bonus.forward_model, *data)[mask.numpy()].mean()
    assert bonus.loss(*data, mask)[0].item() == pytest.approx(expected, rel=1e-3)
    bonus.loss(*data)[0].backward()
    assert not any(p.requires_grad for p in bonus.encoder.parameters())
    assert all(p.grad is None for p in bonus.encoder.parameters())
    assert all(p.grad.abs().max() > 0 for p in bonus.forward_model.parameters())


def test_disagreement_reward_is_the_variance_over_models_averaged_over_features():
    bonus, (obs, actions, next_obs) = make("disagreement", models=3, **SMALL), batch()
    features = encoded(bonus, obs)
    predicted = [plain.forward_model(bonus.ensemble, k, features, actions) for k in range(3)]
    expected = []
    for b in range(len(obs)):
        spread = [
            sum((p[b, d] - sum(q[b, d] for q in predicted) / 3) ** 2 for p in predicted) / 3
            for d in range(8)
        ]
        expected.append(sum(spread) / 8)
    np.testing.assert_allclose(array(bonus.reward(obs, actions, next_obs)), expected, rtol=1e-3)
    other = bonus.reward(obs, actions, next_obs.flip(0))
    torch.testing.assert_close(
        bonus.reward(obs, actions, next_obs), other
    )  # what came of it does not matter


def test_disagreement_loss_without_dropout_is_every_models_error():
    bonus, data = make("disagreement", models=3, loss_dropout=0.0, **SMALL), batch()
    mask = torch.arange(12) % 3 != 0
    errors = np.mean(
        [forward_errors(bonus, bonus.ensemble, *data, number=k) for k in range(3)], axis=0
    )
    assert bonus.loss(*data)[0].item() == pytest.approx(errors.mean(), rel=1e-3)
    assert bonus.loss(*data, mask)[0].item() == pytest.approx(errors[mask.numpy()].mean(), rel=1e-3)


def test_disagreement_loss_drops_a_fifth_of_each_models_samples_independently(monkeypatch):
    bonus, data = (
        make("disagreement", models=4, **SMALL),
        [x.repeat_interleave(50, 0) for x in batch()],
    )
    seen = []

    def spy(ones, share):
        seen.append(torch.nn.functional.dropout(ones, share))
        return seen[-1]

    monkeypatch.setattr("ssedb.bonuses.disagreement.dropout", spy)
    torch.manual_seed(0)
    loss, _ = bonus.loss(*data)
    (left,) = seen
    assert left.shape == (4, 600)
    kept = left != 0
    assert kept.float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert not torch.equal(kept[0], kept[1])
    errors = np.stack([forward_errors(bonus, bonus.ensemble, *data, number=k) for k in range(4)])
    assert loss.item() == pytest.approx((errors * kept.numpy()).mean() / 0.8, rel=1e-3)
