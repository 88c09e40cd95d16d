"""InfoNCE on Gaussians, whose information is known: the bound holds, and is near it."""

import math

import pytest
import torch

from ssedb.theory import contrast


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_truth_and_best_critic_match_torch_distributions():
    rho, dims = 0.7, 3
    joint = torch.distributions.MultivariateNormal(
        torch.zeros(2, dtype=torch.float64), torch.tensor([[1, rho], [rho, 1]], dtype=torch.float64)
    )
    alone = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    x, y = contrast.draw_pairs(rho, dims, 50_000, generator())
    log_ratio = (
        joint.log_prob(torch.stack([x, y], -1)) - alone.log_prob(x) - alone.log_prob(y)
    ).sum(-1)
    assert torch.allclose(contrast.best_critic(rho)(x[:50], y[:50]).diagonal(), log_ratio[:50])
    assert float(log_ratio.mean()) == pytest.approx(
        contrast.mutual_information(rho, dims), rel=0.02
    )


@pytest.mark.parametrize("rho", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("batch", [4, 64])
def test_best_critic_stays_under_the_truth_and_under_log_n(rho, batch):
    found = contrast.nce_estimate(
        contrast.best_critic(rho), rho, 4, batch, 20_000 // batch, generator()
    )
    assert found.value - 4 * found.error <= min(found.mutual_information, math.log(batch))


def test_best_critic_with_a_large_batch_comes_near_the_truth():
    found = contrast.nce_estimate(contrast.best_critic(0.5), 0.5, 4, 512, 40, generator())
    assert (
        0.98 * found.mutual_information < found.value < found.mutual_information
    )  # log(N) left out, or doubled, is far from this


def test_trained_critic_learns_and_stays_under():
    rho = 0.9
    critic = contrast.trained_critic(rho, 2, 64, 300, generator())
    found = contrast.nce_estimate(critic, rho, 2, 64, 200, generator(1))
    best = contrast.nce_estimate(contrast.best_critic(rho), rho, 2, 64, 200, generator(1))
    assert 0.9 * best.value < found.value < best.value < found.mutual_information


def test_contrast_without_the_luck_keeps_the_expectation():
    """A critic that knows nothing finds nothing."""
    found = contrast.nce_estimate(
        lambda x, y: torch.zeros(len(x), len(y), dtype=x.dtype), 0.6, 4, 32, 4000, generator()
    )
    assert abs(found.value) < 4 * found.error < 0.02
