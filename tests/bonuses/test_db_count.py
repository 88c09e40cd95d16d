"""DB-count: the reservoir draws evenly, and the counts are those of near choices."""

import math

import numpy as np
import pytest
import torch

from ssedb.bonuses import db_count
from tests.bonuses import plain
from tests.bonuses.plain import SHAPE, array, batch, make
from tests.toy import TINY_OPTIONS

TINY = {**TINY_OPTIONS, "latent_dim": 6, "channels": (4, 4, 4)}


def labelled(numbers):
    """Observations that say who they are: the first two pixels hold a number."""
    obs = torch.zeros(len(numbers), *SHAPE, dtype=torch.uint8)
    obs[:, 0, 0, 0], obs[:, 0, 0, 1] = numbers % 256, numbers // 256
    return obs, numbers % 4, obs


@pytest.mark.parametrize(
    "sizes", [[200], [7] * 28 + [4], [1] * 200], ids=["at once", "in batches", "one by one"]
)
def test_reservoir_holds_every_pair_with_equal_chance(sizes):
    bonus = make("db-count", memory=10, neighbours=3, **TINY)
    bonus.represent = lambda obs, actions: (torch.zeros(len(obs), 6), torch.ones(len(obs), 6))
    batches = [labelled(part) for part in torch.arange(200).split(sizes)]
    held = torch.zeros(200)
    lives = 40 if len(sizes) > 100 else 200
    for life in range(lives):
        torch.manual_seed(life)
        bonus.seen.zero_()
        for data in batches:
            bonus.observe(*data)
        numbers = bonus.past_obs[:, 0, 0, 0].long() + 256 * bonus.past_obs[:, 0, 0, 1].long()
        assert len(numbers.unique()) == 10  # no pair is held twice
        assert torch.equal(bonus.past_actions, numbers % 4)
        held[numbers] += 1
    assert bonus.seen == 200
    by_age = held.view(10, 20).mean(1) / lives  # the chance of a pair, by its time: 10 / 200
    noise = (0.05 / (20 * lives)) ** 0.5
    assert (by_age - 0.05).abs().max() < 4 * noise


def test_reservoir_takes_the_first_pair_beyond_its_size_with_the_right_chance():
    bonus = make("db-count", memory=2, neighbours=1, **TINY)
    bonus.represent = lambda obs, actions: (torch.zeros(len(obs), 6), torch.ones(len(obs), 6))
    taken = 0
    torch.manual_seed(0)
    for _ in range(600):
        bonus.seen.zero_()
        bonus.observe(*labelled(torch.arange(3)))
        taken += int((bonus.past_obs[:, 0, 0, 0] == 2).any())
    assert abs(taken / 600 - 2 / 3) < 4 * (2 / 9 / 600) ** 0.5


def test_db_count_is_the_nearness_to_all_that_fits_in_memory():
    bonus, data = make("db-count", memory=64, **TINY), batch(10)
    past = [batch(20, seed=1), batch(20, seed=2)]
    for seen in past:
        bonus.observe(*seen)
    bonus.width.fill_(0.02)
    z, old = (
        plain.posterior(bonus, *data[:2])[0],
        np.concatenate([plain.posterior(bonus, *seen[:2])[0] for seen in past]),
    )
    counts = [sum(math.exp(-(math.dist(row, other) ** 2) / 0.02) for other in old) for row in z]
    assert 1 < max(counts) < 39
    np.testing.assert_allclose(
        array(bonus.counts(bonus.represent(*data[:2])[0])), counts, rtol=2e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        array(bonus.reward(*data)), 1 / np.sqrt(np.array(counts) + 1), rtol=1e-3
    )
    origin = sum(
        math.exp(-(math.hypot(*other) ** 2) / 0.02) for other in old
    )  # where the empty places of the memory lie
    assert bonus.counts(torch.zeros(1, 6)).item() == pytest.approx(origin, abs=1e-3)


@pytest.mark.parametrize("neighbours", [1, 10])
def test_db_count_memory_is_encoded_anew_after_a_rollout_and_sets_the_width(
    neighbours, monkeypatch
):
    bonus, seen = make("db-count", memory=64, neighbours=neighbours, **TINY), batch(40, seed=1)
    bonus.observe(*seen)
    with torch.no_grad():
        bonus.encoder.dense.bias += 1
    before = bonus.past.clone()
    bonus.after_rollout()
    z = plain.posterior(bonus, *seen[:2])[0]
    np.testing.assert_allclose(array(bonus.past[:40]), z, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(bonus.past[:40], before[:40])
    assert bonus.past[40:].abs().max() == 0
    near = [
        sorted(math.dist(row, other) ** 2 for j, other in enumerate(z) if j != i)[neighbours - 1]
        for i, row in enumerate(z)
    ]
    assert bonus.width.item() == pytest.approx(sum(near) / 40, rel=1e-2)
    monkeypatch.setattr(db_count, "WIDTH_ROWS", 15)  # rows, whose neighbours are among all
    bonus.after_rollout()
    assert bonus.width.item() == pytest.approx(sum(near[:15]) / 15, rel=1e-2)


def test_db_count_with_few_memories_keeps_the_width():
    bonus = make("db-count", memory=64, neighbours=10, **TINY)
    bonus.width.fill_(0.7)
    bonus.after_rollout()
    bonus.observe(*batch(10))
    bonus.after_rollout()
    assert bonus.width.item() == pytest.approx(0.7)
    alike = [x[:1].repeat_interleave(20, 0) for x in batch()]
    bonus = make("db-count", memory=20, neighbours=10, **TINY)
    bonus.observe(*alike)
    bonus.after_rollout()
    assert bonus.reward(*alike).tolist() == pytest.approx([21**-0.5] * 20, rel=1e-3)


def test_db_count_beyond_memory_is_estimated():
    """A thousand choices, a quarter of them alike; a memory of 200 must find about 250."""
    bonus = make("db-count", memory=200, **TINY)

    def represent(obs, actions):
        return (100 * (obs[:, 0, 0, 0] % 4).float())[:, None].expand(-1, 6).clone(), torch.ones(
            len(obs), 6
        )

    bonus.represent = represent
    torch.manual_seed(0)
    for part in torch.arange(1000).split(64):
        bonus.observe(*labelled(part))
    counts = bonus.counts(represent(*labelled(torch.arange(4))[:2])[0])
    assert counts.sum().item() == pytest.approx(1000, rel=1e-5)
    assert (counts - 250).abs().max() < 4 * 1000 * (0.25 * 0.75 / 200) ** 0.5


def test_db_count_of_an_empty_memory_rewards_one():
    torch.testing.assert_close(make("db-count", memory=64, **TINY).reward(*batch()), torch.ones(12))
