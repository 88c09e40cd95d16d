"""Random Network Distillation against NumPy and against what it should do."""

import numpy as np
import torch

import ssedb
from tests.bonuses import plain


def small_rnd():
    torch.manual_seed(0)
    return ssedb.make_bonus("rnd", (4, 36, 36), 3, channels=(4, 4, 4), feature_dim=8)


def batch(n=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    obs, next_obs = (
        torch.randint(0, 256, (n, 4, 36, 36), generator=generator).to(torch.uint8) for _ in range(2)
    )
    return obs, torch.zeros(n, dtype=torch.int64), next_obs


def test_rnd_reward_is_the_mean_squared_error_on_the_newest_frame_by_running_statistics():
    bonus = small_rnd()
    seen = [batch(seed=s)[2][:, -1:].double().numpy() for s in (1, 2, 3)]
    for s in (1, 2, 3):
        bonus.observe(*batch(seed=s))
    everything = np.concatenate(seen)
    obs, actions, next_obs = batch(seed=4)
    scaled = (next_obs[:, -1:].double().numpy() - everything.mean(0)) / np.maximum(
        everything.std(0), 1
    )
    x = torch.from_numpy(np.clip(scaled, -5, 5)).float()
    expected = (bonus.predictor(x) - bonus.target(x)).square().mean(1)
    torch.testing.assert_close(
        bonus.reward(obs, actions, next_obs), expected.detach(), rtol=1e-3, atol=1e-5
    )
    torch.testing.assert_close(
        bonus.features(next_obs, actions), bonus.predictor(x).detach(), rtol=1e-3, atol=1e-4
    )
    other = next_obs.clone()
    other[:, :-1] = 0
    torch.testing.assert_close(
        bonus.reward(obs, actions, other), bonus.reward(obs, actions, next_obs)
    )


def test_rnd_networks_are_those_of_the_paper():
    """The target is linear above the convolutions; the predictor has two more layers, with ReLU."""
    bonus = small_rnd()
    frames = torch.randn(6, 1, 36, 36)
    x = plain.trunk(bonus.target[0], plain.array(frames))
    np.testing.assert_allclose(
        plain.array(bonus.target(frames)), plain.dense(bonus.target[1], x), rtol=1e-4, atol=1e-5
    )
    x = plain.trunk(bonus.predictor[0], plain.array(frames))
    first, second, third = (
        layer for layer in bonus.predictor if isinstance(layer, torch.nn.Linear)
    )
    x = np.maximum(plain.dense(second, np.maximum(plain.dense(first, x), 0)), 0)
    np.testing.assert_allclose(
        plain.array(bonus.predictor(frames)), plain.dense(third, x), rtol=1e-4, atol=1e-5
    )


def test_rnd_update_trains_the_predictor_alone_and_lowers_the_reward():
    bonus = small_rnd()
    data = batch()
    target = [p.clone() for p in bonus.target.parameters()]
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], lr=1e-3)
    before = bonus.reward(*data).mean()
    for _ in range(60):
        loss, _ = bonus.loss(*data)
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert all(torch.equal(a, b) for a, b in zip(target, bonus.target.parameters(), strict=True))
    assert bonus.reward(*data).mean() < 0.5 * before


def test_rnd_loss_leaves_out_masked_pairs():
    mask = torch.arange(32) % 2 == 0
    obs, actions, next_obs = batch()
    bonus = small_rnd()
    errors = bonus.errors(next_obs)
    torch.testing.assert_close(bonus.loss(obs, actions, next_obs, mask)[0], errors[mask].mean())
