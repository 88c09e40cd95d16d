"""The DB model's bonus against the exact information gain and the visit counts.

Both are known in two environments: a tabular one, whose one-hot state is drawn as a picture and
which a fixed policy visits, and Rooms, where the agent's reward is the bonus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ssedb import objectives
from ssedb.bonuses import make_bonus
from ssedb.bonuses.db import DynamicBottleneck
from ssedb.collect.environments import look_around
from ssedb.collect.rollout import STACK
from ssedb.config import TrainConfig
from ssedb.envs.rooms.world import World
from ssedb.noises import make_noise
from ssedb.theory.gain import information_gain
from ssedb.theory.mdps import river_swim
from ssedb.trainer import Trainer
from ssedb.transitions import draw_transitions
from ssedb.updates import bonus_step, train_bonus

LAM = 1.0
SAMPLES = 8
"""Draws of z for each posterior, to estimate its divergence from a mixture."""


class Posteriors(NamedTuple):
    """Posteriors g^Z of some transitions: mean and std [B, Z], and visits [B]."""

    mean: Tensor
    std: Tensor
    weight: Tensor


class Snapshot(NamedTuple):
    """Bonuses of a model on M probe transitions at one moment of training."""

    steps: int
    counts: Tensor  # N(s, a) [M]
    exact: Tensor  # sqrt(I) of Theorem 2 [M]
    practical: Tensor  # the DB-bonus, sqrt(KL[g^Z || N(0, I)]) [M]
    marginal: Tensor  # sqrt(KL[g^Z || marginal of the visited pairs]) [M]
    linear: Tensor  # sqrt(I) of Theorem 1 with eta = E z [M]
    upper: float  # I_upper, mean KL to N(0, I) over the visited pairs
    inside: float  # I([S, A]; Z); the rest of I_upper is KL[marginal || N(0, I)]


def log_densities(z: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return log N(z; mean, std^2), [B, C], of every z [B, D]; mean and std are [C, D]."""
    weight = std.square().reciprocal()
    squares = z.square() @ weight.T - 2 * z @ (mean * weight).T + (mean.square() * weight).sum(-1)
    return -0.5 * squares - std.log().sum(-1) - z.shape[-1] / 2 * math.log(2 * math.pi)


def divergence_from_mixture(
    mean: Tensor, std: Tensor, seen: Posteriors, generator: torch.Generator
) -> Tensor:
    """Estimate KL[N(mean, std^2) || mixture of the seen posteriors] with SAMPLES draws each.

    Args:
        mean: [B, D].
        std: [B, D].
        seen: components of the mixture, weighted by their visits.
        generator: draws the samples.

    Returns:
        Nats, [B].
    """
    mean, std, centre = mean.double(), std.double(), seen.mean.double()
    shares = (seen.weight.double() / seen.weight.sum()).log()
    total = torch.zeros(len(mean), dtype=torch.float64)
    for _ in range(SAMPLES):
        noise = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
        constant = mean.shape[-1] / 2 * math.log(2 * math.pi)
        own = (-0.5 * noise.square() - std.log()).sum(-1) - constant
        others = log_densities(mean + std * noise, centre, seen.std.double())
        total += own - (others + shares).logsumexp(-1)
    return total / SAMPLES


@torch.no_grad()
def take_snapshot(
    bonus: DynamicBottleneck,
    obs: Tensor,
    actions: Tensor,
    counts: Tensor,
    states: int,
    steps: int,
    seen: Posteriors,
    precision: Tensor,
) -> Snapshot:
    """Compute all bonuses of a model on M probe transitions.

    Args:
        bonus: the model.
        obs: uint8 [M, C, H, W].
        actions: int64 [M].
        counts: N(s, a), [M].
        states: |S|.
        steps: steps of training so far.
        seen: posteriors of visited pairs.
        precision: sum of eta eta' over all visits, eta = E z, [Z, Z].
    """
    generator = torch.Generator().manual_seed(0)
    mean, std = bonus.represent(obs, actions)
    ridge = precision + LAM * torch.eye(len(precision), dtype=torch.float64)
    linear = objectives.information_gain(mean.double(), torch.linalg.inv(ridge), states).sqrt()
    exact = np.sqrt(information_gain(1 / (counts.numpy() + LAM), states))
    share = seen.weight / seen.weight.sum()
    upper = (share * objectives.kl_to_standard_normal(seen.mean, seen.std)).sum()
    inside = (share * divergence_from_mixture(seen.mean, seen.std, seen, generator)).sum()
    marginal = divergence_from_mixture(mean, std, seen, generator).clamp_min(0).sqrt()
    practical = bonus.reward(obs, actions, obs)
    ranked = torch.from_numpy(exact), practical, marginal, linear
    return Snapshot(steps, counts, *ranked, float(upper), float(inside))


class OneHotRiver:
    """RiverSwim with its state as a bright square in a picture; walkers go right at 65%."""

    side, actions = 4, 2
    states = side * side

    def __init__(self, walkers: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kernel = river_swim(1, self.states).kernel[0].cumsum(-1)[:, :-1]
        self.state = np.zeros(walkers, np.int64)

    def pictures(self, states: Tensor) -> Tensor:
        """Draw states int64 [B], uint8 [B, 1, 36, 36]: large enough for the encoder."""
        onehot = torch.nn.functional.one_hot(states, self.states).view(-1, 1, self.side, self.side)
        return (255 * onehot).to(torch.uint8).repeat_interleave(9, 2).repeat_interleave(9, 3)

    def walk(self, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return (states, actions, next states) of every walker, int64 [steps * walkers] each."""
        walked = []
        for _ in range(steps):
            actions = (self.rng.random(len(self.state)) < 0.65).astype(np.int64)
            chance = self.rng.random((len(self.state), 1))
            after = (chance > self.kernel[self.state * self.actions + actions]).sum(-1)
            walked.append((self.state, actions, after))
            self.state = after
        columns = [torch.from_numpy(np.concatenate(column)) for column in zip(*walked, strict=True)]
        return columns[0], columns[1], columns[2]


def train_on_river(
    rollouts: int, init: int, seed: int, options: dict[str, Any]
) -> Iterator[Snapshot]:
    """Train a DB model on one rollout of RiverSwim after the other; yield a snapshot of each.

    Args:
        rollouts: how many.
        init: seed of the network.
        seed: of the data.
        options: settings of DB.
    """
    torch.manual_seed(init)
    river = OneHotRiver(16, seed)
    states = torch.arange(river.states).repeat_interleave(river.actions)
    actions = torch.arange(river.actions).repeat(river.states)
    obs = river.pictures(states)
    bonus = make_bonus("db", tuple(obs.shape[1:]), river.actions, preset="rooms", **options)
    assert isinstance(bonus, DynamicBottleneck)
    bonus.normalize.set(obs.float().mean(0), obs.float().std(0).mean())
    adam = torch.optim.Adam([p for p in bonus.parameters() if p.requires_grad], lr=1e-3, fused=True)
    counts = torch.zeros(len(states), dtype=torch.int64)
    for _ in range(rollouts):
        s, a, after = river.walk(128)
        epochs = (
            [
                (river.pictures(s[i]), a[i], river.pictures(after[i]))
                for i in torch.randperm(len(s)).split(256)
            ]
            for _ in range(4)
        )
        for _ in train_bonus(bonus, partial(bonus_step, bonus, adam), epochs):
            pass
        counts = counts + torch.bincount(s * river.actions + a, minlength=len(counts))
        with torch.no_grad():
            mean, std = bonus.represent(obs, actions)
        rows, was = mean.double() * counts.sqrt()[:, None], counts > 0
        seen = Posteriors(mean[was], std[was], counts[was])
        steps = int(counts.sum())
        yield take_snapshot(bonus, obs, actions, counts, river.states, steps, seen, rows.T @ rows)


def train_on_rooms(iterations: int, seed: int, options: dict[str, Any]) -> Iterator[Snapshot]:
    """Train DB's agent on Rooms without noise; yield a snapshot of each iteration.

    Args:
        iterations: of Algorithm 1.
        seed: of the run.
        options: settings of the run.
    """
    torch.manual_seed(seed)
    own: dict[str, Any] = dict(bonus="db", entropy_coef=0.001, seed=seed, device="cpu")
    config = TrainConfig(env="rooms-small", preset="rooms", **own, **options)
    trainer = Trainer(config)
    trainer.fit_observations(look_around(config))
    bonus, rollout = trainer.bonus, trainer.rollout
    counts = trainer.env.env.visit_counts  # type: ignore[attr-defined]
    assert isinstance(bonus, DynamicBottleneck)
    data = draw_transitions(World("small"), None, 512, 1, make_noise("none"), seed=1)
    obs, actions, _ = data.pair(None)
    states, latent = int(counts.reachable.sum()), bonus.options.latent_dim
    precision = torch.zeros(latent, latent, dtype=torch.float64)
    t, n = rollout.indices(torch.arange(rollout.num_envs))
    t, n = t[t >= STACK], n[t >= STACK]  # the next rollout overwrites the first stacks
    for _ in range(iterations):
        trainer.iterate()
        with torch.no_grad():
            mean, std = bonus.represent(rollout.stacks(t, n), rollout.actions[t, n])
        precision += mean.double().T @ mean.double()
        some = torch.randperm(len(t))[:512]
        seen = Posteriors(mean[some], std[some], torch.ones(len(some)))
        visits = counts.pair_visits[data.states, data.actions]
        yield take_snapshot(bonus, obs, actions, visits, states, trainer.steps, seen, precision)
