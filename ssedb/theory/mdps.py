"""Finite-horizon MDPs that are linear in known features, n of them at once: one for each seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class MDP:
    """Batch of n MDPs; a pair is state * actions + action, and episodes begin in state 0."""

    name: str
    states: int
    actions: int
    horizon: int
    features: Array  # eta [n, pairs, d], norms at most 1
    kernel: Array  # P(s' | s, a) [n, pairs, states], linear in the features
    rewards: Array  # [n, pairs], in [0, 1], linear in the features

    @property
    def copies(self) -> int:
        """Number of MDPs, n."""
        return len(self.kernel)

    @property
    def is_tabular(self) -> bool:
        """Whether the features are one-hot."""
        _, pairs, d = self.features.shape
        return pairs == d and bool((self.features == np.eye(d)).all())

    def best_values(self) -> Array:
        """Return the expected return of the best policy, [n], by dynamic programming."""
        values = np.zeros((self.copies, self.states))
        for _ in range(self.horizon):
            q = self.rewards + (self.kernel @ values[..., None])[..., 0]
            values = q.reshape(self.copies, self.states, self.actions).max(-1)
        return values[:, 0]


def tabular(name: str, horizon: int, kernel: Array, rewards: Array) -> MDP:
    """Make an MDP with one-hot features.

    Args:
        name: of the MDP.
        horizon: steps of an episode.
        kernel: P(s' | s, a), [n, states, actions, states].
        rewards: [n, states, actions].
    """
    n, states, actions = rewards.shape
    pairs = states * actions
    features = np.broadcast_to(np.eye(pairs), (n, pairs, pairs))
    kernel, rewards = kernel.reshape(n, pairs, states), rewards.reshape(n, pairs)
    return MDP(name, states, actions, horizon, features, kernel, rewards)


def river_swim(copies: int, states: int = 6, horizon: int = 12) -> MDP:
    """Make RiverSwim: left succeeds always, right against the current.

    The reward is 0.005 for left in the first state, and 1 for right in the last.
    """
    kernel, rewards = np.zeros((states, 2, states)), np.zeros((states, 2))
    last = states - 1
    for s in range(states):
        kernel[s, 0, max(s - 1, 0)] = 1
        kernel[s, 1, [max(s - 1, 0), s, min(s + 1, last)]] = 0.05, 0.6, 0.35
    kernel[0, 1], kernel[last, 1] = 0, 0
    kernel[0, 1, :2] = 0.4, 0.6
    kernel[last, 1, -2:] = 0.4, 0.6
    rewards[0, 0], rewards[last, 1] = 0.005, 1
    kernels, rewards = (np.repeat(x[None], copies, 0) for x in (kernel, rewards))
    return tabular("RiverSwim", horizon, kernels, rewards)


def combination_lock(
    rng: np.random.Generator, copies: int, length: int = 6, actions: int = 3, slip: float = 0.1
) -> MDP:
    """Make combination locks: in each state one action, drawn for each copy, leads on.

    The other actions give a reward of 0.1 and end in a state without reward. The right action ends
    there, too, with probability `slip`. In the last state the right action has reward 1.
    """
    states, out = length + 1, length  # the last state is where a mistake leads
    kernel = np.zeros((copies, states, actions, states))
    rewards = np.zeros((copies, states, actions))
    code = rng.integers(actions, size=(copies, length))
    kernel[..., out] = 1
    rewards[:, :length] = 0.1
    copy = np.arange(copies)
    for place in range(length):
        onward = place + 1 if place + 1 < length else out
        kernel[copy, place, code[:, place]] = 0
        kernel[copy, place, code[:, place], out] = slip
        kernel[copy, place, code[:, place], onward] += 1 - slip
        rewards[copy, place, code[:, place]] = float(place + 1 == length)
    return tabular("combination lock", length, kernel, rewards)


def random_linear(rng: np.random.Generator, copies: int) -> MDP:
    """Make linear MDPs: P(s' | s, a) = eta(s, a)' mu(s'), eta on the simplex, mu d distributions.

    The reward is the last feature. Small concentrations give most pairs nearly one feature, and
    each distribution few states.
    """
    d, states, actions, horizon = 8, 20, 3, 8
    features = rng.dirichlet(np.full(d, 0.05), (copies, states * actions))
    mixed = rng.dirichlet(np.full(states, 0.05), (copies, d))
    kernel, rewards = features @ mixed, features[..., -1]
    return MDP("random linear", states, actions, horizon, features, kernel, rewards)
