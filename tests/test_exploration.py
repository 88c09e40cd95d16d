"""A learning test: a fading bonus keeps an agent exploring, another keeps it in place.

Tabular, because the same through `Trainer` took 15 s of CPU for one seed of two bonuses. The policy
is a table; reward scale, advantages, PPO loss, counts, KL and ensemble are the package's.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ssedb import ppo
from ssedb.bonuses.base import Context
from ssedb.bonuses.count import Count, CountOptions
from ssedb.networks import Ensemble
from ssedb.normalize import RewardNorm
from ssedb.objectives import db_bonus

CELLS, ACTIONS = 40, 3
"""A corridor: left, stay, right. Episodes begin at its left end."""
ENVS, STEPS, EPISODE, ITERATIONS = 16, 32, 64, 100
GAMMA, RATE = 0.95, 0.02


class Counts:
    """The count bonus over true cells."""

    def __init__(self) -> None:
        self.bonus = Count((1, 1, 1), ACTIONS, CountOptions(counted="states", table_bits=8))

    def __call__(self, cells: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        obs, context = cells[:, None, None, None], Context(torch.zeros_like(cells), cells)
        return self.bonus.reward(obs, actions, obs, context)

    def learn(self, cells: Tensor, actions: Tensor, after: Tensor) -> None:
        obs, context = cells[:, None, None, None], Context(torch.zeros_like(cells), cells)
        self.bonus.observe(obs, actions, obs, context)


class FixedKL:
    """DB's bonus for posteriors that training does not move: sqrt(KL[q(z|s,a) || N(0, I)])."""

    def __init__(self) -> None:
        self.means = 2 * torch.randn(CELLS, ACTIONS, 8)

    def __call__(self, cells: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        means = self.means[cells, actions]
        return db_bonus(means, torch.full_like(means, 0.5))

    def learn(self, cells: Tensor, actions: Tensor, after: Tensor) -> None:
        pass


class Disagreement:
    """The bonus of `db-ensemble` where z names cell and action: the spread of five models."""

    def __init__(self) -> None:
        self.models = Ensemble(5, CELLS + ACTIONS, 64, CELLS)
        self.adam = torch.optim.Adam(self.models.parameters(), 1e-3)

    def predict(self, cells: Tensor, actions: Tensor) -> Tensor:
        return self.models(torch.cat([one_hot(cells, CELLS), one_hot(actions, ACTIONS)], 1).float())

    @torch.no_grad()
    def __call__(self, cells: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        return self.predict(cells, actions).var(0, correction=0).mean(-1).sqrt()

    def learn(self, cells: Tensor, actions: Tensor, after: Tensor) -> None:
        for _ in range(8):
            error = (self.predict(cells, actions) - one_hot(after, CELLS)).square().sum(-1).mean()
            self.adam.zero_grad()
            error.backward()
            self.adam.step()


def explore(bonus: Counts | FixedKL | Disagreement) -> list[Tensor]:
    """Train a tabular policy on a bonus alone; return visits to each cell in each half of it."""
    table = nn.Parameter(torch.zeros(CELLS, ACTIONS + 1))  # logits and a value
    adam = torch.optim.Adam([table], RATE)
    scale = RewardNorm(ENVS, GAMMA, recent=True)
    cell = torch.zeros(ENVS, dtype=torch.int64)
    age = torch.arange(ENVS) * EPISODE // ENVS  # episodes end at different times
    visits = [torch.zeros(CELLS, dtype=torch.int64) for _ in range(2)]
    for iteration in range(ITERATIONS):
        cells, actions, after = (torch.zeros(STEPS, ENVS, dtype=torch.int64) for _ in range(3))
        log_probs = table.detach()[:, :ACTIONS].log_softmax(-1)
        for t in range(STEPS):
            cells[t] = cell
            actions[t] = torch.multinomial(log_probs[cell].exp(), 1)[:, 0]
            after[t] = (cell + actions[t] - 1).clamp(0, CELLS - 1)
            age = (age + 1) % EPISODE
            cell = torch.where(age == 0, 0, after[t])
        visits[2 * iteration // ITERATIONS] += torch.bincount(cells.flatten(), minlength=CELLS)
        seen = cells.flatten(), actions.flatten(), after.flatten()
        rewards = scale(bonus(*seen).view(STEPS, ENVS))
        bonus.learn(*seen)
        values = table.detach()[torch.cat([cells, cell[None]]), ACTIONS]  # [T + 1, N]
        advantages, returns = ppo.advantages_and_returns(rewards, values, GAMMA, 0.95)
        advantages = ppo.normalize_advantages(advantages).flatten()
        old = log_probs[seen[0], seen[1]]
        for _ in range(4):
            logits, value = table[seen[0], :ACTIONS], table[seen[0], ACTIONS]
            loss, _ = ppo.ppo_loss(
                logits, value, seen[1], old, advantages, returns.flatten(),
                clip=0.2, entropy_coef=0.05,
            )  # fmt: skip
            adam.zero_grad()
            loss.backward()
            adam.step()
    return visits


def entropy(visits: Tensor) -> float:
    """Entropy in nats of how visits spread over the cells."""
    shares = visits[visits > 0] / visits.sum()
    return float(-(shares * shares.log()).sum())


# Bounds are from seeds 0 to 11. Without any bonus an agent sees 19 to 24 of the 40 cells, and
# visits spread over 2.2 to 2.3 nats in either half (all cells alike: 3.69).


@pytest.mark.parametrize(("fading", "least"), [(Counts, 40), (Disagreement, 26)])
def test_exploration_bonus_that_fades_keeps_the_agent_exploring(fading, least):
    # Counts: 40 cells, 3.38 to 3.63 nats in the second half; ensemble: 28 to 33, 2.96 to 3.25.
    torch.manual_seed(0)
    first, second = explore(fading())
    assert (first + second > 0).sum() >= least
    assert entropy(second) > 2.7


def test_exploration_bonus_that_does_not_fade_keeps_the_agent_at_one_place():
    # 14 to 21 cells; 1.08 to 2.00 nats in the first half, 0.13 to 1.39 in the second.
    torch.manual_seed(0)
    first, second = explore(FixedKL())
    assert (first + second > 0).sum() <= 24
    assert entropy(second) < min(1.7, entropy(first) - 0.3)
