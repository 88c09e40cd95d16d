"""Learning Progress Monitoring against plain NumPy."""

import numpy as np
import pytest
import torch

from ssedb.trainer import Trainer
from tests.bonuses import plain
from tests.bonuses.plain import ACTIONS, array, batch, encoded, make
from tests.toy import Grid, tiny_config

SMALL = dict(channels=(4, 4, 4), feature_dim=8)


def log_errors(bonus, model, obs, actions, next_obs):
    predicted = plain.forward_model(model, 0, encoded(bonus, obs), actions)
    return np.log(((predicted - encoded(bonus, next_obs)) ** 2).sum(1) / 8)


def expected_errors(bonus, obs, actions):
    x = np.concatenate([encoded(bonus, obs), np.eye(ACTIONS)[actions.numpy()]], 1)
    for layer in (0, 2):
        x = plain.lrelu(plain.dense(bonus.error_model[layer], x))
    return plain.dense(bonus.error_model[4], x)[:, 0]


def moved_on(**options):
    """One whose forward model has moved on from the last iteration's."""
    bonus = make("lpm", **SMALL, **options)
    bonus.after_rollout()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        bonus.forward_model.bias += (
            torch.randn(bonus.forward_model.bias.shape, generator=generator) / 4
        )
    return bonus


def descend(bonus, model, draw, steps):
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        adam.zero_grad()
        bonus.loss(*draw())[0].backward()
        adam.step()


def test_lpm_reward_is_the_expected_log_error_minus_that_of_the_forward_model():
    bonus, data = moved_on(), batch()
    expected = expected_errors(bonus, *data[:2]) - log_errors(bonus, bonus.forward_model, *data)
    np.testing.assert_allclose(array(bonus.reward(*data)), expected, rtol=1e-3, atol=1e-4)


def test_lpm_reward_before_the_first_update_is_zero():
    bonus, data = make("lpm", **SMALL), batch()
    bonus.loss(*data)
    bonus.after_step()
    bonus.after_epoch()
    assert (bonus.reward(*data) == 0).all()
    bonus.after_rollout()
    assert (bonus.reward(*data) != 0).all()


def test_lpm_loss_is_the_forward_error_and_that_of_the_error_model_about_the_previous_one():
    bonus, data = moved_on(), batch()
    now, before = (
        log_errors(bonus, model, *data) for model in (bonus.forward_model, bonus.previous)
    )
    assert np.abs(now - before).max() > 0.1
    missed = (expected_errors(bonus, *data[:2]) - before) ** 2
    mask = torch.arange(12) % 3 != 1
    for rows, given in ((slice(None), None), (mask.numpy(), mask)):
        loss, metrics = bonus.loss(*data, given)
        assert metrics["forward_loss"].item() == pytest.approx(np.exp(now)[rows].mean(), rel=1e-3)
        assert metrics["error_loss"].item() == pytest.approx(missed[rows].mean(), rel=1e-3)
        assert loss.item() == pytest.approx((np.exp(now) + missed)[rows].mean(), rel=1e-3)


def test_lpm_models_are_each_trained_by_their_own_error_alone():
    bonus, data = moved_on(), batch()
    loss, _ = bonus.loss(*data)
    now, later = bonus.encode(data[0]), bonus.encode(data[2])
    own = (bonus.forward_model(now, data[1])[0] - later).square().mean()
    models = list(bonus.forward_model.parameters())
    found = torch.autograd.grad(loss, models, retain_graph=True)
    for a, b in zip(found, torch.autograd.grad(own, models), strict=True):
        torch.testing.assert_close(a, b)
    loss.backward()
    assert all(p.grad.abs().max() > 0 for p in bonus.error_model.parameters())
    assert all(p.grad is None for p in [*bonus.encoder.parameters(), *bonus.previous.parameters()])


def test_lpm_error_model_learns_the_errors_that_rewarded_the_rollout(tmp_path):
    """While a rollout is trained on, `previous` is the forward model that rewarded it."""
    trainer = Trainer(
        tiny_config(tmp_path, bonus="lpm", bonus_options=SMALL, bonus_epochs=2), Grid(8)
    )
    bonus = trainer.bonus
    reward, loss, rewarding, learned = bonus.reward, bonus.loss, [], []

    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()

    bonus.reward = lambda *x: rewarding.append(weights(bonus.forward_model)) or reward(*x)
    bonus.loss = lambda *x: learned.append(weights(bonus.previous)) or loss(*x)
    for _ in range(3):
        rewarding.clear(), learned.clear()
        trainer.iterate()
        assert (len(rewarding), len(learned)) == (2, 4)
        assert all(torch.equal(kept, rewarding[0]) for kept in learned)
        assert not torch.equal(
            weights(bonus.forward_model), rewarding[0]
        )  # it has learned meanwhile


def test_lpm_reward_rises_with_learning_and_not_with_known_noise():
    """After the same updates: on moves of the grid, and on next states drawn anew each time."""
    obs, actions, next_obs = batch(60)
    generator = torch.Generator().manual_seed(0)

    def noise():
        return obs, actions, torch.randint(256, next_obs.shape, generator=generator).byte()

    progress = {}
    for name, draw, known in (("env", lambda: (obs, actions, next_obs), 0), ("noise", noise, 60)):
        bonus = make("lpm", **SMALL)
        descend(bonus, bonus.forward_model, draw, known)
        bonus.after_rollout()
        descend(bonus, bonus.error_model, draw, 80)
        before = bonus.reward(*draw()).mean().item()
        descend(bonus, bonus.forward_model, draw, 20)
        progress[name] = before, bonus.reward(*draw()).mean().item()
    assert (
        abs(progress["env"][0]) < 0.1
    )  # the forward model is still that of which the errors are expected
    assert progress["env"][1] > 1
    assert abs(progress["noise"][1]) < progress["env"][1] / 4


def test_lpm_reward_of_an_exact_prediction_is_finite():
    bonus, data = moved_on(), batch()
    with torch.no_grad():
        for module in (bonus.encoder, bonus.forward_model, bonus.error_model):
            for parameter in module.parameters():
                parameter.zero_()
    np.testing.assert_allclose(array(bonus.reward(*data)), [-np.log(1e-8)] * 12, rtol=1e-5)
