"""LSVI-UCB (the paper's Algorithm 2) with the UCB, the DB or the count bonus.

Many seeds and settings run at once; arrays are [step, setting, seed, ...]. Values at the next state
enter the regression linearly, so two recursive least-squares fits suffice: of the reward and of the
one-hot next state. Sherman-Morrison updates them after each episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ssedb.theory.mdps import MDP, Array

Kind = Literal["ucb", "db", "count", "none"]


class Setting(NamedTuple):
    """Bonus and its coefficient beta; DB's is relative to sqrt(c/2), so that scales agree."""

    kind: Kind
    beta: float


def bonus_of(kind: Kind, squared_widths: Array, counts: Array, lam: float) -> Array:
    """Return the bonus with beta = 1, from squared widths u^2 and counts N of one shape.

    UCB: u. DB: sqrt(I) / sqrt(c/2) = sqrt(log(1 + u^2)). Count: 1 / sqrt(N + lambda). None: 0.
    """
    if kind == "ucb":
        return np.sqrt(squared_widths)
    if kind == "db":
        return np.sqrt(np.log1p(squared_widths))
    return 1 / np.sqrt(counts + lam) if kind == "count" else np.zeros_like(squared_widths)


class Regression:
    """Ridge regression of rewards and next states on features, for every step, setting and seed."""

    def __init__(self, mdp: MDP, settings: int, lam: float = 1.0) -> None:
        batch, d = (mdp.horizon, settings, mdp.copies), mdp.features.shape[-1]
        self.mdp = mdp
        self.inverse = np.broadcast_to(np.eye(d) / lam, (*batch, d, d)).copy()  # Lambda^-1
        self.reward = np.zeros((*batch, d))
        self.next_state = np.zeros((*batch, d, mdp.states))
        norms = np.square(mdp.features).sum(-1) / lam
        # eta' Lambda^-1 eta of each state-action pair.
        self.squared_widths = np.broadcast_to(norms, (*batch, norms.shape[-1])).copy()
        self.counts = np.zeros_like(self.squared_widths)
        self._index = np.ogrid[tuple(slice(size) for size in batch)]

    def add(self, pairs: Array, rewards: Array, next_states: Array) -> None:
        """Add a transition of every step, setting and seed, each array [H, K, n]."""
        features, where = self.mdp.features, tuple(self._index)
        eta = features[where[-1], pairs]
        u = (self.inverse @ eta[..., None])[..., 0]
        scale = 1 / (1 + (eta * u).sum(-1, keepdims=True))
        gain = u * scale
        self.squared_widths -= np.square((features @ u[..., None])[..., 0]) * scale
        np.maximum(self.squared_widths, 0, out=self.squared_widths)  # rounding
        self.inverse -= gain[..., None] * u[..., None, :]
        self.reward += gain * (rewards - (eta * self.reward).sum(-1))[..., None]
        missing = -(eta[..., None, :] @ self.next_state)[..., 0, :]
        missing[(*where, next_states)] += 1
        self.next_state += gain[..., None] * missing[..., None, :]
        self.counts[(*where, pairs)] += 1


def plan(model: Regression, bonuses: Array, ties: Array) -> tuple[Array, Array]:
    """Compute the optimistic Q of line 10 backwards in time, and its greedy policy.

    Args:
        model: the regression.
        bonuses: [H, K, n, pairs].
        ties: small numbers that break ties, [H, n, states, actions].

    Returns:
        The policy [H, K, n, states], and its expected return [K, n] in the MDP itself.
    """
    mdp = model.mdp
    horizon, k, n, _ = bonuses.shape
    values, returns = np.zeros((2, k, n, mdp.states))
    policy = np.empty((horizon, k, n, mdp.states), np.int64)
    first = np.arange(mdp.states) * mdp.actions
    for t in reversed(range(horizon)):
        weights = model.reward[t] + (model.next_state[t] @ values[..., None])[..., 0]
        q = np.minimum((mdp.features @ weights[..., None])[..., 0] + bonuses[t], horizon)
        q = q.reshape(k, n, mdp.states, mdp.actions)
        values = q.max(-1)
        policy[t] = (q + ties[t]).argmax(-1)
        true_q = mdp.rewards + (mdp.kernel @ returns[..., None])[..., 0]
        returns = np.take_along_axis(true_q, first + policy[t], -1)
    return policy, returns[..., 0]


def run_lsvi(
    mdp: MDP,
    settings: Sequence[Setting],
    episodes: int,
    rng: np.random.Generator,
    lam: float = 1.0,
    tell: Callable[[float], None] = lambda share: None,
) -> Array:
    """Run LSVI-UCB, and return the expected regret of each episode.

    All settings share their random draws: in one episode the same actions lead to the same states.

    Args:
        mdp: n MDPs.
        settings: K bonuses with their betas.
        episodes: how many.
        rng: draws transitions and breaks ties.
        lam: lambda.
        tell: called with the share that is done.

    Returns:
        Return of the best policy minus that of this one, [K, n, episodes].
    """
    model = Regression(mdp, len(settings), lam)
    best, regret = mdp.best_values(), np.empty((len(settings), mdp.copies, episodes))
    ties = 1e-9 * rng.random((mdp.horizon, mdp.copies, mdp.states, mdp.actions))
    below = mdp.kernel.cumsum(-1)[..., :-1]
    row, copy = np.arange(len(settings))[:, None], np.arange(mdp.copies)
    shape = (mdp.horizon, len(settings), mdp.copies)
    pairs, next_states = np.empty((2, *shape), np.int64)
    rewards = np.empty(shape)
    for episode in range(episodes):
        bonuses = np.empty_like(model.squared_widths)
        for i, (kind, beta) in enumerate(settings):
            widths, counts = model.squared_widths[:, i], model.counts[:, i]
            bonuses[:, i] = beta * bonus_of(kind, widths, counts, lam)
        policy, earned = plan(model, bonuses, ties)
        regret[..., episode] = best - earned
        state = np.zeros((len(settings), mdp.copies), np.int64)
        chance = rng.random((mdp.horizon, mdp.copies, 1))
        for t in range(mdp.horizon):
            pairs[t] = state * mdp.actions + policy[t, row, copy, state]
            rewards[t] = mdp.rewards[copy, pairs[t]]
            state = next_states[t] = (chance[t] > below[copy, pairs[t]]).sum(-1)
        model.add(pairs, rewards, next_states)
        if episode % 50 == 49:
            tell((episode + 1) / episodes)
    return regret
