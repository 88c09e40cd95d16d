"""Theorems 1 and 2: information gain of Bayesian linear regression, UCB bonus, count bonus.

s' = W eta + noise, W [c, d] with prior N(0, I / lam), noise N(0, I). Leading dimensions are a batch
of problems.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray

WIDEST = 2.512862417252339
"""Root of log(1 + x) = x / 2: the lower bound of Theorem 1 holds up to this squared width."""


def gram(data: Array, lam: float = 1.0) -> Array:
    """Return Lambda = sum of eta eta' + lam I, [..., d, d], of features [..., m, d]."""
    return data.swapaxes(-1, -2) @ data + lam * np.eye(data.shape[-1])


def squared_width(precision: Array, eta: Array) -> Array:
    """Return u^2 = eta' Lambda^-1 eta, the square of the UCB bonus with beta = 1.

    Args:
        precision: Lambda, [..., d, d].
        eta: features, [..., d].

    Returns:
        Squared widths, [...].
    """
    return (eta * np.linalg.solve(precision, eta[..., None])[..., 0]).sum(-1)


def information_gain(squared_width: Array, c: Array | float) -> Array:
    """Return I(W; [s, a, S'] | D) = c/2 log(1 + u^2), in nats, whose root is the DB-bonus."""
    return c / 2 * np.log1p(squared_width)


def gain_by_determinants(data: Array, eta: Array, c: int, lam: float = 1.0) -> Array:
    """Return I = (log det after - log det before) / 2, of the precision [cd, cd] of vec(W).

    Args:
        data: features seen, [..., m, d].
        eta: features of the new sample, [..., d].
        c: dimensions of s'.
        lam: precision of the prior.

    Returns:
        Nats, [...].
    """
    copies = np.eye(c)  # of eta, one for each row of W
    before = gram(np.kron(data, copies), lam)
    after = before + gram(np.kron(eta[..., None, :], copies), 0)
    return (np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1]) / 2


def ucb_bounds(squared_width: Array, c: Array | float) -> tuple[Array, Array]:
    """Return Theorem 1's bounds on sqrt(I): sqrt(c/4) u and sqrt(c/2) u."""
    width = np.sqrt(squared_width)
    return np.sqrt(c / 4) * width, np.sqrt(c / 2) * width


def count_bonus(counts: Array, states: int, lam: float = 1.0) -> Array:
    """Return Theorem 2's limit of the DB-bonus in a tabular MDP, sqrt(|S|/2) / sqrt(N + lam)."""
    return np.sqrt(states / 2) / np.sqrt(counts + lam)


class Draws(NamedTuple):
    """Information gains of n random problems, each [n]."""

    squared_widths: Array  # eta' Lambda^-1 eta
    outputs: Array  # c
    gains: Array  # by the closed form
    by_determinants: Array


def random_problems(
    rng: np.random.Generator, count: int, norm: float = 1.0, lam: float = 1.0
) -> Draws:
    """Draw problems of many sizes, and compute their information gains.

    Args:
        rng: draws the features.
        count: fewest problems.
        norm: feature norms are uniform between 0 and this; a tenth are exactly this.
        lam: precision of the prior.
    """
    sizes = [(d, m, c) for d in (1, 2, 4, 8) for m in (0, 1, 4, 16, 64) for c in (1, 3)]
    each = -(-count // len(sizes))
    found = []
    for d, m, c in sizes:
        features = rng.normal(size=(each, m + 1, d))
        at_it, lengths = rng.random((2, each, m + 1, 1))
        lengths = np.where(at_it < 0.1, norm, norm * lengths)
        features *= lengths / np.linalg.norm(features, axis=-1, keepdims=True)
        data, eta = features[:, :-1], features[:, -1]
        squared = squared_width(gram(data, lam), eta)
        slow = gain_by_determinants(data, eta, c, lam)
        found.append((squared, np.full(each, c), information_gain(squared, c), slow))
    return Draws(*(np.concatenate(column) for column in zip(*found, strict=True)))


class Visits(NamedTuple):
    """One state-action pair of a tabular MDP after N visits."""

    counts: Array
    bonus: Array  # sqrt(I), from the Gram matrix of the one-hot features
    predicted: Array  # Theorem 2


def tabular_visits(
    counts: list[int], states: int = 6, actions: int = 2, lam: float = 1.0, seed: int = 0
) -> Visits:
    """Compute the DB-bonus of one state-action pair of a tabular MDP after some visits.

    Args:
        counts: visits of the pair; the other pairs have random visits.
        states: |S|.
        actions: actions of the MDP.
        lam: precision of the prior.
        seed: of the other visits.
    """
    rng, pairs = np.random.default_rng(seed), states * actions
    onehot = np.eye(pairs)
    bonus = []
    for n in counts:
        visited = np.concatenate([np.zeros(n, np.int64), rng.integers(1, pairs, 3 * pairs)])
        width = squared_width(gram(onehot[visited], lam), onehot[0])
        bonus.append(np.sqrt(information_gain(width, states)))
    return Visits(np.array(counts), np.array(bonus), count_bonus(np.array(counts), states, lam))
