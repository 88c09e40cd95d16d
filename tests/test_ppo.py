"""Advantages against a loop, the loss against NumPy."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from ssedb import ppo


def test_advantages_match_a_loop():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(50, 3)), rng.normal(size=(51, 3))
    expected, running = np.zeros((50, 3)), np.zeros(3)
    for t in reversed(range(50)):
        delta = rewards[t] + 0.99 * values[t + 1] - values[t]
        running = delta + 0.99 * 0.95 * running
        expected[t] = running
    advantages, returns = ppo.advantages_and_returns(
        torch.from_numpy(rewards), torch.from_numpy(values), 0.99, 0.95
    )
    np.testing.assert_allclose(advantages, expected, rtol=1e-10)
    np.testing.assert_allclose(returns, expected + values[:-1], rtol=1e-10)


class Largest(TorchFunctionMode):
    """Notes the size of the largest tensor that a function returns."""

    size = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_advantages_of_a_long_rollout_are_exact_and_need_no_square_of_its_length():
    steps, rng = 5000, torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(t, 1, generator=rng) for t in (steps, steps + 1))
    with Largest() as largest:
        advantages, _ = ppo.advantages_and_returns(rewards, values, 1.0, 1.0)
    ahead = rewards.double().flip(0).cumsum(0).flip(0)
    torch.testing.assert_close(
        advantages.double(), ahead + values[-1] - values[:-1], atol=5e-5, rtol=1e-6
    )
    assert largest.size < steps**2 / 10


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.0, 0.95), (0.99, 0.0), (1.0, 1.0)])
def test_advantages_at_the_edges_are_exact(gamma, gae_lambda):
    rewards, values = torch.randn(6, 2, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    advantages, _ = ppo.advantages_and_returns(rewards, values, gamma, gae_lambda)
    deltas = rewards + gamma * values[1:] - values[:-1]
    if gamma * gae_lambda == 0:
        torch.testing.assert_close(advantages, deltas)
    else:
        torch.testing.assert_close(advantages[0], deltas.sum(0))


def test_advantages_are_normalised_over_the_whole_rollout():
    advantages = ppo.normalize_advantages(torch.randn(8, 4) * 30 + 5)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert advantages.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert torch.isfinite(ppo.normalize_advantages(torch.ones(8, 4))).all()


def test_loss_matches_numpy():
    rng = np.random.default_rng(1)
    logits, values, returns = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=5)
    actions, advantages = np.array([0, 1, 2, 1, 0]), np.array([1.0, -1.0, 2.0, -0.5, 0.3])
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    chosen = np.log(probs[np.arange(5), actions])
    old = chosen - np.array(
        [0.3, -0.3, 0.05, 0.5, -0.01]
    )  # ratios beyond both ends of the clip, and within
    ratio = np.exp(chosen - old)
    surrogate = [
        min(a * r, a * min(max(r, 0.9), 1.1)) for a, r in zip(advantages, ratio, strict=True)
    ]
    entropy = -(probs * np.log(probs)).sum(1).mean()
    expected = -np.mean(surrogate) + 0.5 * np.mean((values - returns) ** 2) - 0.01 * entropy
    loss, metrics = ppo.ppo_loss(
        *(torch.from_numpy(x) for x in (logits, values, actions, old, advantages, returns)),
        clip=0.1,
        entropy_coef=0.01,
    )
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    assert metrics["entropy"].item() == pytest.approx(entropy, rel=1e-9)
    assert metrics["clip_fraction"].item() == pytest.approx(3 / 5)
    assert metrics["approx_kl"].item() == pytest.approx(
        np.mean(ratio - 1 - np.log(ratio)), rel=1e-9
    )


def test_explained_variance_of_known_values_is_exact():
    returns = torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert ppo.explained_variance(returns, returns).item() == pytest.approx(1)
    assert ppo.explained_variance(torch.zeros(100), returns).item() == pytest.approx(0, abs=1e-6)
    assert ppo.explained_variance(returns, torch.ones(100)).item() == 0
