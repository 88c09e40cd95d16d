"""Measures of the probe, each a pure function."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

RIDGE = 1e-3
"""Weight of the squared coefficients of a linear probe."""


def noise_share(values: Tensor) -> float:
    """Return within / (within + between), the share of the variance that comes from the noise.

    `within` is the variance over the draws of one transition, `between` the variance between
    transitions, both unbiased and summed over dims.

    Args:
        values: [draws, transitions] or [draws, transitions, dims].

    Returns:
        A number from 0 (blind to the noise) to 1 (nothing but noise).
    """
    values = values.double()
    draws = len(values)
    within = values.var(0).mean(0).sum()
    between = (values.mean(0).var(0) - values.var(0).mean(0) / draws).sum().clamp_min(0)
    total = within + between
    return float(within / total) if total > 0 else 0.0


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Return Spearman's rho of two vectors [n]; 0 if one does not vary.

    Ties share their mean rank.
    """
    from scipy.stats import rankdata

    a, b = (rankdata(x.double().cpu().numpy()) for x in (first, second))
    return float(np.corrcoef(a, b)[0, 1]) if a.std() * b.std() > 0 else 0.0


def linear_fit(features: Tensor, targets: Tensor) -> Tensor:
    """Predict the second half's targets from its features by ridge regression on the first half.

    Args:
        features: [n, d].
        targets: [n, k].

    Returns:
        Predictions, [n - n // 2, k].
    """
    features, targets = features.double(), targets.double()
    half = len(features) // 2
    std, mean = torch.std_mean(features[:half], 0)
    x = torch.cat([(features - mean) / std.clamp_min(1e-8), torch.ones_like(features[:, :1])], 1)
    gram = x[:half].T @ x[:half]
    gram.diagonal().add_(RIDGE * half)
    return x[half:] @ torch.linalg.solve(gram, x[:half].T @ targets[:half])


def explained_share(features: Tensor, targets: Tensor) -> float:
    """Return max(0, R^2) of a linear probe on held-out samples, over all target dimensions.

    Args:
        features: [n, d]; the second half is held out.
        targets: [n, k].
    """
    held_out = targets[len(features) // 2 :].double()
    error = (linear_fit(features, targets) - held_out).square().sum()
    spread = (held_out - held_out.mean(0)).square().sum()
    return max(0.0, 1 - float(error / spread)) if spread > 0 else 0.0


def probe_accuracy(features: Tensor, classes: Tensor) -> float:
    """Return the accuracy of a linear probe on held-out samples.

    Args:
        features: [n, d]; the second half is held out.
        classes: int64 [n].
    """
    onehot = torch.nn.functional.one_hot(classes).double()
    right = linear_fit(features, onehot).argmax(1) == classes[len(features) // 2 :]
    return float(right.double().mean())
