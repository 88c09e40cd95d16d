"""DB-count: the reservoir draws evenly, and the counts are those of like posteriors."""

import math

import numpy as np
import pytest
import torch

from tests.bonuses import plain
from tests.bonuses.plain import SHAPE, array, batch, make
from tests.toy import TINY_OPTIONS

TINY = {**TINY_OPTIONS, "latent_dim": 6, "channels": (4, 4, 4)}


def labelled(numbers):
    """Observations that say who they are: the first two pixels hold a number."""
    obs = torch.zeros(len(numbers), *SHAPE, dtype=torch.uint8)
    obs[:, 0, 0, 0], obs[:, 0, 0, 1] = numbers % 256, numbers // 256
    return obs, numbers % 4, obs


@pytest.mark.parametrize("sizes", [[200], [7] * 28 + [4], [1] * 200], ids=["at once", "in batches", "one by one"])
def test_every_choice_of_life_is_equally_likely_to_be_held(sizes):
    bonus = make("db-count", memory=10, **TINY)
    bonus.represent = lambda obs, actions: (torch.zeros(len(obs), 6), torch.ones(len(obs), 6))
    batches = [labelled(part) for part in torch.arange(200).split(sizes)]
    held = torch.zeros(200)
    lives = 40 if len(sizes) > 100 else 200
    for life in range(lives):
        torch.manual_seed(life)
        bonus.seen.zero_()
        for data in batches:
            bonus.take_in(*data)
        numbers = bonus.past_obs[:, 0, 0, 0].long() + 256 * bonus.past_obs[:, 0, 0, 1].long()
        assert len(numbers.unique()) == 10  # no choice is held twice
        assert torch.equal(bonus.past_actions, numbers % 4)
        held[numbers] += 1
    assert bonus.seen == 200
    by_age = held.view(10, 20).mean(1) / lives  # the chance of a choice, by when it was made: 10 / 200
    noise = (0.05 / (20 * lives)) ** 0.5
    assert (by_age - 0.05).abs().max() < 4 * noise


def test_count_is_the_likeness_to_all_that_fits_in_memory():
    bonus, data = make("db-count", memory=64, **TINY), batch(10)
    past = [batch(20, seed=1), batch(20, seed=2)]
    for seen in past:
        bonus.take_in(*seen)
    mean, std = plain.posterior(bonus, *data[:2])
    old = [plain.posterior(bonus, *seen[:2]) for seen in past]
    old_mean, old_std = (np.concatenate([part[i] for part in old]) for i in range(2))
    counts = [
        sum(math.exp(-plain.kl(m, s, om, os)) for om, os in zip(old_mean, old_std, strict=True))
        for m, s in zip(mean, std, strict=True)
    ]
    assert max(counts) > 1
    np.testing.assert_allclose(array(bonus.counts(*data[:2])), counts, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(array(bonus.reward(*data)), 1 / np.sqrt(np.array(counts) + 1), rtol=1e-3)


def test_beyond_memory_the_count_is_estimated():
    """A thousand choices, a quarter of them alike; a memory of 200 must find about 250."""
    bonus = make("db-count", memory=200, **TINY)

    def represent(obs, actions):
        kind = (obs[:, 0, 0, 0] % 4).float()[:, None]
        return 100 * kind.expand(-1, 6).clone(), torch.ones(len(obs), 6)

    bonus.represent = represent
    torch.manual_seed(0)
    for part in torch.arange(1000).split(64):
        bonus.take_in(*labelled(part))
    counts = bonus.counts(*labelled(torch.arange(4))[:2])
    assert counts.sum().item() == pytest.approx(1000, rel=1e-5)
    assert (counts - 250).abs().max() < 4 * 1000 * (0.25 * 0.75 / 200) ** 0.5


def test_memories_are_encoded_anew_after_a_rollout():
    bonus, seen = make("db-count", memory=64, **TINY), batch(20, seed=1)
    bonus.take_in(*seen)
    with torch.no_grad():
        bonus.encoder.dense.bias += 1
    before = bonus.past_mean.clone()
    bonus.after_rollout()
    mean, std = plain.posterior(bonus, *seen[:2])
    np.testing.assert_allclose(array(bonus.past_mean[:20]), mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(array(bonus.past_std[:20]), std, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(bonus.past_mean[:20], before[:20])
    assert bonus.reward(*seen).isfinite().all()


def test_an_empty_memory_pays_one():
    torch.testing.assert_close(make("db-count", memory=64, **TINY).reward(*batch()), torch.ones(12))
