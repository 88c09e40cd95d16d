"""The measures behind the probe, each a pure function with a known answer on constructed inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def noise_share(values: Tensor) -> float:
    """How much of the variance comes from redrawing the noise: 0 is blind to it, 1 sees nothing else.

    `values` [draws, transitions] or [draws, transitions, dims] (variances summed over dims). An analysis of variance: the
    variance within a transition over its draws, over that plus the variance between transitions, both unbiased.
    """
    values = values.double()
    draws = len(values)
    within = values.var(0).mean(0).sum()
    between = (values.mean(0).var(0) - values.var(0).mean(0) / draws).sum().clamp_min(0)
    total = within + between
    return float(within / total) if total > 0 else 0.0


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's rho, ties sharing their mean rank; 0 where one of them does not vary."""
    from scipy.stats import rankdata

    a, b = (rankdata(x.double().cpu().numpy()) for x in (first, second))
    return float(np.corrcoef(a, b)[0, 1]) if a.std() * b.std() > 0 else 0.0


def linear_fit(features: Tensor, targets: Tensor, ridge: float = 1e-3) -> Tensor:
    """Predictions of the second half's targets [n, k] from its features, by ridge regression on the first half."""
    features, targets = features.double(), targets.double()
    half = len(features) // 2
    std, mean = torch.std_mean(features[:half], 0)
    x = torch.cat([(features - mean) / std.clamp_min(1e-8), torch.ones_like(features[:, :1])], 1)
    gram = x[:half].T @ x[:half]
    gram.diagonal().add_(ridge * half)
    return x[half:] @ torch.linalg.solve(gram, x[:half].T @ targets[:half])


def explained_share(features: Tensor, targets: Tensor) -> float:
    """R^2 of a linear probe on held-out samples, over all target dimensions that vary; below 0 counts as 0."""
    held_out = targets[len(features) // 2 :].double()
    error = (linear_fit(features, targets) - held_out).square().sum()
    spread = (held_out - held_out.mean(0)).square().sum()
    return max(0.0, 1 - float(error / spread)) if spread > 0 else 0.0


def probe_accuracy(features: Tensor, classes: Tensor) -> float:
    """Share of held-out samples whose class a linear probe names."""
    onehot = torch.nn.functional.one_hot(classes).double()
    right = linear_fit(features, onehot).argmax(1) == classes[len(features) // 2 :]
    return float(right.double().mean())
