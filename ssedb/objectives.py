"""Equations of the Dynamic Bottleneck, one pure function each.

Names in brackets are the paper's labels. Sums run over the dimensions of a vector, means over the
batch. A mask, bool [B], selects the rows that count; the result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from ssedb.products import product, wide


def kl_to_standard_normal(mean: Tensor, std: Tensor) -> Tensor:
    """Return KL[N(mean, std^2) || N(0, I)] = 1/2 sum(mean^2 + std^2 - 1 - 2 log std) of each row.

    Args:
        mean: [B, D].
        std: [B, D].

    Returns:
        Nats, [B].
    """
    return 0.5 * (mean.square() + std.square() - 1 - 2 * std.log()).sum(-1)


def compression_upper_bound(mean: Tensor, std: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return I_upper = E[KL(N(mean, std^2) || N(0, I))] >= I([S_t, A_t]; Z_t) [eq:upperbound].

    Args:
        mean: of the posterior, [B, Z].
        std: of the posterior, [B, Z].
        mask: rows that count, bool [B].

    Returns:
        A scalar.
    """
    return masked_mean(kl_to_standard_normal(mean, std), mask)


def predictive_lower_bound(
    next_state: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return I_pred = E[log N(s'; mean, std^2 I)] [eq::predictive_lower_bound].

    Args:
        next_state: s', [B, S].
        mean: of its prediction, [B, S].
        std: of its prediction, [B, 1] or what broadcasts to it.
        mask: rows that count, bool [B].

    Returns:
        A scalar.
    """
    standardised = (next_state - mean) / std
    log_density = -0.5 * standardised.square() - std.log() - 0.9189385332046727  # log(2 pi) / 2
    return masked_mean(log_density.sum(-1), mask)


def calibrated_std(next_state: Tensor, mean: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the one std that makes I_pred largest on a batch: sqrt(E[(s' - mean)^2]).

    Args:
        next_state: s', [B, S].
        mean: of its prediction, [B, S].
        mask: rows that count, bool [B].

    Returns:
        A scalar.
    """
    # The floor keeps log(std) and its gradient finite on a batch that is predicted exactly or
    # masked entirely.
    return masked_mean((next_state - mean).square().mean(-1), mask).clamp_min(1e-6).sqrt()


def bilinear_scores(predicted: Tensor, weight: Tensor, actual: Tensor) -> Tensor:
    """Return h = p' W s of every prediction p with every next state s, both projected [eq:nceh].

    Args:
        predicted: [B, D].
        weight: W, [D, D].
        actual: [C, D].

    Returns:
        Scores, [B, C].
    """
    return product(product(predicted, weight), actual.T)


def contrastive_lower_bound(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return I_nce = E[h_ii - log sum_j exp h_ij] [eq:nce].

    Args:
        scores: h, [B, B], with a row's own next state on the diagonal.
        mask: rows that count, bool [B], as predictions and as negatives.

    Returns:
        A scalar.
    """
    own = scores.diagonal()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return masked_mean(own - scores.logsumexp(-1), mask)


def db_loss(
    i_upper: Tensor, i_pred: Tensor, i_nce: Tensor, alphas: tuple[float, float, float]
) -> Tensor:
    """Return L_DB = alpha1 I_upper - alpha2 I_pred - alpha3 I_nce, to be minimised [eq:db-loss].

    Args:
        i_upper: a scalar, as are the others.
        i_pred: see `predictive_lower_bound`.
        i_nce: see `contrastive_lower_bound`.
        alphas: (alpha1, alpha2, alpha3).

    Returns:
        A scalar.
    """
    return alphas[0] * i_upper - alphas[1] * i_pred - alphas[2] * i_nce


@torch.no_grad()
def momentum_update(momentum: Iterable[Tensor], online: Iterable[Tensor], tau: float) -> None:
    """Move the momentum copies in place: m <- tau m + (1 - tau) w.

    Args:
        momentum: the copies m.
        online: the weights w, of the same shapes.
        tau: the share that stays.
    """
    torch._foreach_lerp_(list(momentum), list(online), 1 - tau)


def db_bonus(mean: Tensor, std: Tensor, root: Literal["sqrt", "none"] = "sqrt") -> Tensor:
    """Return the intrinsic reward sqrt(KL[g^Z || N(0, I)]) [eq:reward-practice].

    Args:
        mean: of the posterior g^Z, [B, Z].
        std: of the posterior, [B, Z].
        root: `none` leaves the root out, as the released code does.

    Returns:
        Rewards, [B].
    """
    # Rounding may leave -1e-7 where the divergence is 0.
    divergence = kl_to_standard_normal(mean, std).clamp_min(0)
    return divergence.sqrt() if root == "sqrt" else divergence


def information_gain(eta: Tensor, covariance: Tensor, outputs: int) -> Tensor:
    """Return the information c/2 log(1 + eta' Lambda^-1 eta) of one more sample [thm:ucb-informal].

    Args:
        eta: features of the sample, [B, D].
        covariance: Lambda^-1, [D, D].
        outputs: c, the dimensions that a linear map of eta has.

    Returns:
        Nats gained about the map, [B].
    """
    return outputs / 2 * torch.log1p((product(eta, covariance) * eta).sum(-1).clamp_min(0))


def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Return ||x - y||^2 of every row x [B, D] and every other y [C, D].

    Returns:
        Distances, [B, C], computed by products of matrices.
    """
    centre = rows.mean(0)  # far from it rows that are alike would seem apart
    distances = torch.cdist(wide(rows - centre), wide(others - centre))
    return distances.square_().to(rows.dtype)


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of values [B] over the rows that a mask, bool [B], counts; 0 if none does."""
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp_min(1)
