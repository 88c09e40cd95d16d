"""The equations of the Dynamic Bottleneck, one pure function each; the names in brackets are the paper's labels.

Sums run over the dimensions of a vector, means over the batch: the alphas weigh them as such. A mask
[B] names the pairs that count; the others are as if they had never been in the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from ssedb.float32 import exact


def kl_to_standard_normal(mean: Tensor, std: Tensor) -> Tensor:
    """KL[N(mean, std^2) || N(0, I)] of each row: [B, D] to [B]."""
    return 0.5 * (mean.square() + std.square() - 1 - 2 * std.log()).sum(-1)


def compression_upper_bound(mean: Tensor, std: Tensor, mask: Tensor | None = None) -> Tensor:
    """I_upper, an upper bound of I([S_t, A_t]; Z_t) [eq:upperbound]."""
    return masked_mean(kl_to_standard_normal(mean, std), mask)


def predictive_lower_bound(
    next_state: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None = None
) -> Tensor:
    """I_pred, the log-likelihood of the next state under N(mean, std^2 I) [eq::predictive_lower_bound].

    `std` is [B, 1] or broadcasts to it.
    """
    standardised = (next_state - mean) / std
    log_density = -0.5 * standardised.square() - std.log() - 0.9189385332046727  # log(2 pi) / 2
    return masked_mean(log_density.sum(-1), mask)


def calibrated_std(next_state: Tensor, mean: Tensor, mask: Tensor | None = None) -> Tensor:
    """The one std that makes I_pred largest on this batch: the root of the mean squared error. A scalar."""
    # The floor keeps log(std) and its gradient finite on a batch that is predicted exactly, or has nothing that counts.
    return masked_mean((next_state - mean).square().mean(-1), mask).clamp_min(1e-6).sqrt()


@exact
def bilinear_scores(predicted: Tensor, weight: Tensor, actual: Tensor) -> Tensor:
    """h of every prediction with every next state, both projected [eq:nceh]: [B, D], [D, D], [C, D] to [B, C]."""
    return predicted @ weight @ actual.T


def contrastive_lower_bound(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """I_nce: how surely each row's own next state is told from the batch's others [eq:nce].

    Scores are [B, B] with a row's own on the diagonal.
    """
    own = scores.diagonal()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return masked_mean(own - scores.logsumexp(-1), mask)


def db_loss(
    i_upper: Tensor, i_pred: Tensor, i_nce: Tensor, alphas: tuple[float, float, float]
) -> Tensor:
    """L_DB, to be minimised [eq:db-loss]."""
    return alphas[0] * i_upper - alphas[1] * i_pred - alphas[2] * i_nce


@torch.no_grad()
def momentum_update(momentum: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """Moves the momentum copies: tau of themselves, 1 - tau of the online weights."""
    torch._foreach_lerp_(list(momentum), list(online), 1 - tau)


def db_bonus(mean: Tensor, std: Tensor, root: Literal["sqrt", "none"] = "sqrt") -> Tensor:
    """The reward of each row: the root of KL[g^Z || N(0, I)] [eq:reward-practice], or without the root as released."""
    divergence = kl_to_standard_normal(mean, std).clamp_min(
        0
    )  # rounding may leave -1e-7 where it is 0
    return divergence.sqrt() if root == "sqrt" else divergence


@exact
def information_gain(eta: Tensor, covariance: Tensor, outputs: int) -> Tensor:
    """Nats gained about a linear map to `outputs` dimensions by one more sample at eta [thm:ucb-informal]: [B, D] to [B].

    `covariance` [D, D] is the inverse of Lambda.
    """
    return outputs / 2 * torch.log1p((eta @ covariance * eta).sum(-1).clamp_min(0))


@exact
def pairwise_kl(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> Tensor:
    """KL of every diagonal Gaussian [B, D] from every other [C, D], [B, C], by products of matrices."""
    weight = other_std.square().reciprocal()
    centre = other_mean.mean(0)  # products of far-off means would lose digits
    mean, other_mean = mean - centre, other_mean - centre
    quadratic = (std.square() + mean.square()) @ weight.T - 2 * mean @ (other_mean * weight).T
    quadratic = quadratic + (other_mean.square() * weight).sum(-1)
    logs = other_std.log().sum(-1) - std.log().sum(-1, keepdim=True)
    return (0.5 * (quadratic - mean.shape[-1]) + logs).clamp_min(0)


@exact
def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Of every row [B, D] from every other [C, D], [B, C], by products of matrices."""
    centre = rows.mean(0)  # far from it rows that are alike would seem apart
    return torch.cdist(rows - centre, others - centre).square_()


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the rows that count; 0 if none does."""
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)
