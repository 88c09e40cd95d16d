"""DB-NGU against a slow loop: one episode and one state-action pair at a time."""

import numpy as np
import pytest
import torch

from ssedb.bonuses.base import Context
from ssedb.trainer import Trainer
from tests.bonuses import plain
from tests.bonuses.plain import array, batch, gain, make
from tests.toy import Grid, tiny_config

TINY = {"channels": (4, 4, 4), "state_dim": 10, "hidden_dim": 64, "latent_dim": 6}


class SlowNGU:
    """The same definition, as a person would write it down."""

    def __init__(self, bonus):
        self.bonus, self.memory, self.past = bonus, {}, np.zeros((0, 6))
        self.spread, self.gain_mean, self.gain_square = 1.0, 0.0, 1.0

    def nearest(self, eta, episodes):
        """For each row the squared distances to the nearest 10 earlier ones of its episode."""
        found, memory = [], {e: list(rows) for e, rows in self.memory.items()}
        for row, episode in zip(eta, episodes, strict=True):
            earlier = memory.setdefault(episode, [])
            found.append(
                sorted(float(((row - other) ** 2).sum()) for other in earlier)[
                    : self.bonus.neighbours
                ]
            )
            earlier.append(row)
        return found, memory

    def reward(self, eta, episodes):
        rewards = []
        for distances, g in zip(
            self.nearest(eta, episodes)[0], gain(eta, self.past, 1.0), strict=True
        ):
            similar = sum(1e-3 / (max(d / self.spread - 8e-3, 0) + 1e-3) for d in distances)
            deviation = max(self.gain_square - self.gain_mean**2, 1e-12) ** 0.5
            lifelong = min(max(1 + (g - self.gain_mean) / deviation, 1), self.bonus.lifelong_cap)
            rewards.append(lifelong / np.sqrt(similar + 1))
        return rewards

    def observe(self, eta, episodes):
        found, memory = self.nearest(eta, episodes)
        known = [d for distances in found for d in distances]
        if known:
            self.spread += 0.01 * (max(np.mean(known), 1e-8) - self.spread)
        g = gain(eta, self.past, 1.0)
        self.gain_mean += 0.01 * (g.mean() - self.gain_mean)
        self.gain_square += 0.01 * ((g**2).mean() - self.gain_square)
        self.past = np.concatenate([self.past, eta])
        self.memory = memory


def eta_of(bonus, data):
    return plain.posterior(bonus, *data[:2])[0]


@pytest.mark.parametrize("neighbours", [1, 10])
def test_db_ngu_reward_is_episodic_novelty_times_lifelong_novelty(neighbours):
    bonus = make("db-ngu", neighbours=neighbours, **TINY)
    slow = SlowNGU(bonus)
    generator = torch.Generator().manual_seed(0)
    for seed in range(4):
        data = batch(40, seed=seed % 3)  # the last round repeats the first
        # Episodes of the four envs; those of the third round are the second's, gone on with.
        episodes = (
            torch.arange(40) % 4
            + 4 * max(0, seed - 1)
            + 4 * (torch.rand(40, generator=generator) < 0.1)
        )
        context, eta = Context(episodes), eta_of(bonus, data)
        np.testing.assert_allclose(
            array(bonus.reward(*data, context)), slow.reward(eta, episodes.tolist()), rtol=1e-2
        )
        bonus.observe(*data, context)
        slow.observe(eta, episodes.tolist())
        assert bonus.spread.item() == pytest.approx(slow.spread, rel=1e-3)
        assert bonus.gain_mean.item() == pytest.approx(slow.gain_mean, rel=1e-3)
        assert bonus.gain_square.item() == pytest.approx(slow.gain_square, rel=1e-3)


def test_db_ngu_moments_are_those_of_the_gains_of_single_transitions():
    bonus = make("db-ngu", **TINY)
    bonus.gain = lambda eta: torch.tensor([1.0, 3.0]).repeat(6)
    bonus.gain_square.zero_()
    bonus.observe(*batch())
    assert bonus.gain_mean.item() == pytest.approx(0.01 * 2)
    assert bonus.gain_square.item() == pytest.approx(0.01 * 5)


def test_db_ngu_lifelong_novelty_is_capped_and_never_below_one():
    bonus, data = make("db-ngu", lifelong_cap=1.5, **TINY), batch()
    bonus.gain_mean.fill_(0.0)
    bonus.gain_square.fill_(1e-6)  # every gain is far above the mean
    torch.testing.assert_close(bonus.reward(*data), torch.full((12,), 1.5))
    bonus.gain_mean.fill_(1e3)
    bonus.gain_square.fill_(1e6 + 1)
    torch.testing.assert_close(bonus.reward(*data), torch.ones(12))


def test_db_ngu_memory_when_full_forgets_the_oldest_pairs_first():
    bonus, data = make("db-ngu", memory=10, neighbours=3, **TINY), batch()
    eta = bonus.represent(*data[:2])[0].detach()
    for start in (0, 4, 8):  # 12 choices in a memory of 10
        rows = slice(start, start + 4)
        bonus.observe(*(x[rows] for x in data), Context(torch.zeros(4, dtype=torch.int64)))
    order = [*range(10, 12), *range(2, 10)]
    torch.testing.assert_close(bonus.remembered, eta[order])
    long = batch(23, seed=1)
    bonus.observe(*long, Context(torch.ones(23, dtype=torch.int64)))  # more than fits
    assert bonus.owners.tolist() == [1] * 10
    newest = bonus.represent(*long[:2])[0].detach()[-10:]
    torch.testing.assert_close(
        bonus.remembered.sort(0).values, newest.sort(0).values, rtol=1e-3, atol=1e-5
    )


def test_db_ngu_without_a_context_treats_every_transition_as_an_episode():
    bonus, data = make("db-ngu", **TINY), batch()
    bonus.observe(*data)
    assert (bonus.owners == -1).all()
    eta = bonus.represent(*data[:2])[0]
    torch.testing.assert_close(bonus.reward(*data), bonus.lifelong(eta))


def test_db_ngu_in_training_gets_the_real_episodes(tmp_path):
    """Real episode ends, several rollouts, minibatches: the loop sees each environment's steps."""
    config = tiny_config(
        tmp_path, bonus="db-ngu", bonus_options={**TINY, "memory": 4096}, learning_rate=1e-9
    )
    trainer = Trainer(config, Grid(8, episode=13))
    bonus, slow, story, offered = trainer.bonus, None, {}, []
    reward, observe = bonus.reward, bonus.observe
    bonus.reward = lambda *x: offered.append((x, reward(*x))) or offered[-1][1]
    taken = []
    type_of = type(bonus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type_of, "observe", lambda self, *x: taken.append(x) or observe(*x))
        slow = SlowNGU(bonus)
        for _ in range(3):
            offered.clear(), taken.clear()
            trainer.iterate()
            assert len(offered) == len(taken) == 2
            for (data, rewards), again in zip(offered, taken, strict=True):
                eta, episodes = eta_of(bonus, data), data[3].episodes.tolist()
                np.testing.assert_allclose(array(rewards), slow.reward(eta, episodes), rtol=2e-2)
                assert torch.equal(again[3].episodes, data[3].episodes)
            for data in taken:
                slow.observe(eta_of(bonus, data), data[3].episodes.tolist())
                for episode in data[3].episodes.tolist():
                    story[episode] = story.get(episode, 0) + 1
    assert len(story) == 8 * 8  # 96 steps in episodes of 13
    assert sorted(set(story.values())) == [96 - 7 * 13, 13]


def test_db_ngu_repeated_pair_is_known_however_far_off_the_representation_lies():
    bonus = make("db-ngu", **TINY)
    far = torch.tensor([30.0, -20, 10, 0, 5, 50]) + 0.01 * torch.randn(
        40, 6, generator=torch.Generator().manual_seed(0)
    )
    far[20:] = far[:20]  # the second half repeats the first
    distances = bonus.nearest(far, torch.zeros(40, dtype=torch.int64))
    assert distances[20:, 0].max() < 1e-8
    assert (distances[1:20, 0] > 1e-6).all()
