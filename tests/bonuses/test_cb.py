"""The Curiosity Bottleneck against plain NumPy."""

import numpy as np
import pytest
import torch

import ssedb
from tests.bonuses import plain
from tests.bonuses.plain import array, batch, make

SMALL = dict(channels=(4, 4, 4), code_dim=6)


def scaled(seen, obs):
    """The newest frames by the mean and std of all that was seen, by pixel, clipped."""
    newest = np.concatenate([array(x)[:, -1:] for x in seen])
    return np.clip((array(obs)[:, -1:] - newest.mean(0)) / np.maximum(newest.std(0), 1), -5, 5)


def code(bonus, frames):
    mean, raw = np.split(plain.dense(bonus.code, plain.trunk(bonus.trunk, frames)), 2, axis=1)
    return mean, np.maximum(plain.softplus(raw), 1e-3)


def taught(**options):
    bonus, seen = make("cb", **SMALL, **options), [batch(20, seed=s) for s in (1, 2)]
    for data in seen:
        bonus.observe(*data)
    return bonus, [data[2] for data in seen]


def test_cb_reward_is_the_divergence_of_the_newest_frames_code_from_the_standard_normal():
    bonus, seen = taught()
    obs, actions, next_obs = batch()
    mean, std = code(bonus, scaled(seen, next_obs))
    expected = [plain.kl(m, s, np.zeros(6), np.ones(6)) for m, s in zip(mean, std, strict=True)]
    np.testing.assert_allclose(array(bonus.reward(obs, actions, next_obs)), expected, rtol=1e-3)
    older = next_obs.clone()
    older[:, :-1] = 255
    torch.testing.assert_close(
        bonus.reward(obs, actions, older), bonus.reward(obs, actions, next_obs)
    )
    np.testing.assert_allclose(array(bonus.features(next_obs, actions)), mean, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_cb_loss_is_the_squared_value_of_a_drawn_code_and_its_nats(masked):
    bonus, seen = taught(beta=0.3)
    obs, actions, next_obs = batch()
    mask = torch.arange(12) % 4 != 0
    torch.manual_seed(7)
    loss, metrics = bonus.loss(obs, actions, next_obs, mask if masked else None)
    torch.manual_seed(7)
    noise = array(torch.randn(12, 6))
    mean, std = code(bonus, scaled(seen, next_obs))
    errors = plain.dense(bonus.value, mean + std * noise)[:, 0] ** 2  # the return of no reward is 0
    nats = np.array(
        [plain.kl(m, s, np.zeros(6), np.ones(6)) for m, s in zip(mean, std, strict=True)]
    )
    rows = mask.numpy() if masked else slice(None)
    assert metrics["value_error"].item() == pytest.approx(errors[rows].mean(), rel=1e-3)
    assert metrics["code_nats"].item() == pytest.approx(nats[rows].mean(), rel=1e-3)
    assert loss.item() == pytest.approx(errors[rows].mean() + 0.3 * nats[rows].mean(), rel=1e-3)


def test_cb_code_std_has_a_floor_of_a_thousandth():
    bonus, data = make("cb", **SMALL), batch()
    with torch.no_grad():
        bonus.code.weight.zero_()
        bonus.code.bias.copy_(torch.tensor([0.0] * 6 + [-60.0] * 6))
    expected = plain.kl(np.zeros(6), np.full(6, 1e-3), np.zeros(6), np.ones(6))
    np.testing.assert_allclose(array(bonus.reward(*data)), [expected] * 12, rtol=1e-5)


def test_cb_settings_are_those_of_its_paper():
    bonus = ssedb.make_bonus("cb", (4, 84, 84), 18)
    assert (bonus.options.beta, bonus.options.code_dim, bonus.trunk.out_dim) == (
        1e-3,
        64,
        64 * 7 * 7,
    )
    assert bonus.code.out_features == 128
