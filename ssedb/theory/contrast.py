"""Appendix A: I_nce + log N never exceeds the mutual information, on Gaussians where it is known.

x and y have D dimensions; each pair (x_i, y_i) is standard normal with correlation rho.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ssedb.objectives import bilinear_scores, contrastive_lower_bound

Critic = Callable[[Tensor, Tensor], Tensor]
"""Function of x [B, D] and y [B, D] that scores every x with every y, [B, B]."""


def mutual_information(rho: float, dims: int) -> float:
    """Return I(X; Y) = -D/2 log(1 - rho^2), in nats, with D = dims."""
    return -dims / 2 * math.log(1 - rho**2)


def draw_pairs(
    rho: float, dims: int, batch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw x and y, each [batch, dims], with correlation rho."""
    x, noise = torch.randn(2, batch, dims, dtype=torch.float64, generator=generator)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def best_critic(rho: float) -> Critic:
    """Return the optimal critic of Appendix A, h(x, y) = log p(y | x) / p(y)."""

    def scores(x: Tensor, y: Tensor) -> Tensor:
        cross = rho * x @ y.T - rho**2 / 2 * (x.square().sum(-1)[:, None] + y.square().sum(-1))
        return cross / (1 - rho**2) - x.shape[-1] / 2 * math.log(1 - rho**2)

    return scores


def trained_critic(
    rho: float, dims: int, batch: int, steps: int, generator: torch.Generator
) -> Critic:
    """Train DB's bilinear score over the features (x, x^2, 1), which contain the optimum.

    Args:
        rho: correlation of the pairs.
        dims: D.
        batch: pairs of each step, drawn afresh.
        steps: of Adam.
        generator: draws the pairs.
    """

    def features(x: Tensor) -> Tensor:
        return torch.cat([x, x.square(), torch.ones_like(x[:, :1])], -1)

    weight = torch.zeros(2 * dims + 1, 2 * dims + 1, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.03)
    for _ in range(steps):
        x, y = draw_pairs(rho, dims, batch, generator)
        loss = -contrastive_lower_bound(bilinear_scores(features(x), weight, features(y)))
        adam.zero_grad()
        loss.backward()
        adam.step()
    found = weight.detach()
    return lambda x, y: bilinear_scores(features(x), found, features(y))


class Estimate(NamedTuple):
    """I_nce + log N, averaged over batches, beside the mutual information."""

    value: float
    error: float  # standard error
    mutual_information: float


def nce_estimate(
    critic: Critic, rho: float, dims: int, batch: int, batches: int, generator: torch.Generator
) -> Estimate:
    """Estimate I_nce + log N of a critic, with N = batch.

    N counts the positive, too. The paper's N, the negatives alone, gives a lower value. The best
    critic's mean over the same pairs has the mutual information as its expectation, so it is a
    control variate: subtracting its error lowers the variance alone.

    Args:
        critic: scores pairs.
        rho: correlation of the pairs.
        dims: D.
        batch: N.
        batches: how many to average over.
        generator: draws the pairs.
    """
    exact, best = mutual_information(rho, dims), best_critic(rho)
    values = torch.empty(batches, dtype=torch.float64)
    for i in range(batches):
        x, y = draw_pairs(rho, dims, batch, generator)
        luck = best(x, y).diagonal().mean() - exact
        values[i] = contrastive_lower_bound(critic(x, y)) + math.log(batch) - luck
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(batches)), exact)
