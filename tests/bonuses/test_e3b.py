"""E3B against a plain loop: an episode at a time, a step at a time."""

import numpy as np
import pytest
import torch

from ssedb.bonuses.base import Context
from ssedb.bonuses.e3b import NOBODY
from ssedb.errors import ConfigError
from ssedb.trainer import Trainer
from tests.bonuses import plain
from tests.bonuses.plain import array, batch, encoded, make
from tests.toy import Grid, tiny_config

TINY = {"channels": (4, 4, 4), "feature_dim": 6, "slots": 64}


class SlowE3B:
    """The definition, with a matrix inverted anew at every step."""

    def __init__(self, ridge=0.1, dim=6):
        self.ridge, self.dim, self.episodes = ridge, dim, {}

    def _walk(self, x, numbers):
        rewards, episodes = [], dict(self.episodes)
        for row, number in zip(x, numbers, strict=True):
            ellipse = episodes.get(number, self.ridge * np.eye(self.dim))
            rewards.append(row @ np.linalg.inv(ellipse) @ row)
            episodes[number] = ellipse + np.outer(row, row)
        return rewards, episodes

    def reward(self, x, numbers):
        return self._walk(x, numbers)[0]

    def observe(self, x, numbers):
        self.episodes = self._walk(x, numbers)[1]


def numbers_of(count, first, generator):
    """Episodes of four envs, some of which end on the way."""
    ends = torch.rand(count, generator=generator) < 0.1
    return torch.tensor(
        [first + i % 4 + 4 * int(ends[i % 4 : i + 1 : 4].sum()) for i in range(count)]
    )


@pytest.mark.parametrize("ridge", [0.1, 2.0])
def test_e3b_reward_is_the_ellipse_over_the_episode_so_far(ridge):
    bonus, slow = make("e3b", ridge=ridge, **TINY), SlowE3B(ridge)
    generator = torch.Generator().manual_seed(0)
    first = 0
    for seed in range(4):
        data = batch(40, seed=seed % 3)  # the last round repeats the first, in other episodes
        episodes = numbers_of(40, first, generator)
        x = encoded(bonus, data[2])
        np.testing.assert_allclose(
            array(bonus.reward(*data, Context(episodes))),
            slow.reward(x, episodes.tolist()),
            rtol=1e-3,
        )
        bonus.observe(*data, Context(episodes))
        slow.observe(x, episodes.tolist())
        first = 4 * int(episodes[-4:].max() // 4)  # the episodes under way go on


@pytest.mark.parametrize("number", [0, -2])  # an episode that is analysed has a number below 0
def test_e3b_memory_is_of_the_episode_alone(number):
    bonus, data = make("e3b", **TINY), batch()
    episode = Context(torch.full((12,), number))
    first = bonus.reward(*data, episode)
    bonus.observe(*data, episode)
    again = bonus.reward(*data, episode)
    assert (again < 0.8 * first).all()
    other = bonus.reward(*data, Context(torch.full((12,), 5)))
    torch.testing.assert_close(other, first)


def test_e3b_episodes_that_share_a_slot_keep_the_last():
    bonus, data = make("e3b", **{**TINY, "slots": 4}), batch()
    x = encoded(bonus, data[2])
    episodes = torch.tensor([1, 2, 1, 2, 5, 2, 5, 2, 9, 2, 9, 2])  # 1, 5 and 9 share a slot
    bonus.observe(*data, Context(episodes))
    assert bonus.owners.tolist() == [NOBODY, 9, 2, NOBODY]
    last = np.zeros((6, 6))
    for row in (8, 10):
        last += np.outer(x[row], x[row])
    np.testing.assert_allclose(array(bonus.sums[1]), last, rtol=1e-3, atol=1e-6)
    before = bonus.sums.clone()
    bonus.observe(
        *(v[:2] for v in data), Context(torch.tensor([5, 5]))
    )  # one that is over does not come back
    assert torch.equal(bonus.sums, before)
    bonus.observe(
        *(v[:1] for v in data), Context(torch.tensor([13]))
    )  # one that begins takes the slot over
    np.testing.assert_allclose(array(bonus.sums[1]), np.outer(x[0], x[0]), rtol=1e-3, atol=1e-6)
    fresh = bonus.reward(*data, Context(torch.full((12,), 5)))
    np.testing.assert_allclose(array(fresh), SlowE3B().reward(x, [5] * 12), rtol=1e-3)


def test_e3b_without_a_context_treats_every_transition_as_an_episode():
    bonus, data = make("e3b", **TINY), batch()
    expected = (encoded(bonus, data[2]) ** 2).sum(1) / 0.1
    bonus.observe(*data)
    assert (bonus.owners == NOBODY).all()
    np.testing.assert_allclose(array(bonus.reward(*data)), expected, rtol=1e-3)


def test_e3b_new_direction_shows_beside_far_larger_ones():
    """1 / t for the same features at time t; |y|^2 / ridge for y at a right angle to all before."""
    bonus = make("e3b", **TINY)
    x = torch.zeros(100, 6, dtype=torch.float64)
    x[:, 0] = 1e3
    x[-1] = torch.tensor([0, 0.01, 0, 0, 0, 0], dtype=torch.float64)
    rewards = bonus.novelty(x, torch.zeros(100, dtype=torch.int64))
    torch.testing.assert_close(
        rewards[1:-1], 1 / torch.arange(1, 99, dtype=torch.float64), rtol=1e-5, atol=0
    )
    assert rewards[-1].item() == pytest.approx(1e-4 / 0.1, rel=1e-4)


def test_e3b_in_training_gets_the_real_episodes(tmp_path):
    """Real episode ends, several rollouts, minibatches: the loop sees each environment's steps."""
    config = tiny_config(tmp_path, bonus="e3b", bonus_options=TINY, learning_rate=1e-9)
    trainer = Trainer(config, Grid(8, episode=13))
    bonus, slow, offered = trainer.bonus, SlowE3B(), []
    reward = bonus.reward
    bonus.reward = lambda *x: offered.append((x, reward(*x))) or offered[-1][1]
    for _ in range(3):
        offered.clear()
        trainer.iterate()
        assert len(offered) == 2
        for data, rewards in offered:
            expected = slow.reward(encoded(bonus, data[2]), data[3].episodes.tolist())
            np.testing.assert_allclose(array(rewards), expected, rtol=1e-2)
        for data, _ in offered:
            slow.observe(encoded(bonus, data[2]), data[3].episodes.tolist())
    assert len(slow.episodes) == 8 * 8  # 96 steps in episodes of 13


def test_e3b_features_are_those_of_an_inverse_model():
    bonus, (obs, actions, next_obs) = make("e3b", **TINY), batch()
    mask = torch.arange(12) % 3 != 1
    np.testing.assert_allclose(
        array(bonus.features(obs, actions)), encoded(bonus, obs), rtol=1e-3, atol=1e-4
    )
    both = np.concatenate([encoded(bonus, obs), encoded(bonus, next_obs)], 1)
    logits = plain.dense(bonus.inverse[2], np.maximum(plain.dense(bonus.inverse[0], both), 0))
    surprise = [
        np.log(np.exp(row).sum()) - row[a] for row, a in zip(logits, actions.tolist(), strict=True)
    ]
    for rows, given in ((slice(None), None), (mask.numpy(), mask)):
        loss, _ = bonus.loss(obs, actions, next_obs, given)
        assert loss.item() == pytest.approx(np.array(surprise)[rows].mean(), rel=1e-4)
    loss.backward()
    assert all(p.grad.abs().max() > 0 for p in bonus.parameters())


@pytest.mark.parametrize(("option", "value"), [("ridge", 0.0), ("slots", 0), ("feature_dim", 0)])
def test_e3b_with_a_senseless_size_is_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option}={value}: must be"):
        make("e3b", **{**TINY, option: value})
