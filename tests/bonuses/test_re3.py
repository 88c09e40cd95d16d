"""RE3 against brute force."""

import math

import numpy as np
import pytest
import torch

import ssedb
from ssedb.bonuses.re3 import nearest_distances
from tests.bonuses import plain
from tests.bonuses.plain import array, batch, make, normalized


def by_brute_force(rows: np.ndarray, k: int) -> np.ndarray:
    """The k smallest distances of each row to the others, sorted."""
    return np.array(
        [
            sorted(math.dist(row, other) for j, other in enumerate(rows) if j != i)[:k]
            for i, row in enumerate(rows)
        ]
    )


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("fidelity", ["paper", "released", "ours"])
def test_re3_reward_is_log_1_plus_the_distance_to_the_kth_neighbour_and_as_released_the_mean_of_k(
    k, fidelity
):
    bonus = make("re3", channels=(4, 4, 4), feature_dim=8, neighbours=k, fidelity=fidelity)
    obs, actions, next_obs = batch(30)
    rows = plain.encoder(bonus.encoder, normalized(bonus, next_obs))
    nearest = by_brute_force(rows, k)
    expected = np.log(1 + (nearest.mean(1) if fidelity == "released" else nearest[:, k - 1]))
    np.testing.assert_allclose(
        array(bonus.reward(obs, actions, next_obs)), expected, rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(array(bonus.features(next_obs, actions)), rows, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_neighbours_of_random_rows_match_brute_force(k):
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(
        array(nearest_distances(rows, k)), by_brute_force(array(rows), k), rtol=1e-5
    )


def test_neighbours_of_equal_or_few_rows_are_defined():
    alike = 1000 * torch.ones(50, 64) + torch.arange(50)[:, None] // 25  # 25 of a kind
    assert nearest_distances(alike, 3).max() == 0
    assert nearest_distances(torch.zeros(1, 4), 3).tolist() == [[0]]
    assert nearest_distances(torch.tensor([[0.0], [3.0]]), 3).tolist() == [[3], [3]]
    bonus, (obs, actions, next_obs) = make("re3", channels=(4, 4, 4), feature_dim=8), batch(1)
    assert bonus.reward(obs, actions, next_obs).tolist() == [0]


def test_re3_trains_nothing_and_has_64_features():
    bonus = ssedb.make_bonus("re3", (4, 84, 84), 18)
    assert bonus.encoder.dense.out_features == 64
    assert bonus.options.neighbours == 3
    assert not any(p.requires_grad for p in bonus.parameters())
    assert bonus.loss(*make_batch())[0].item() == 0


def make_batch():
    obs = torch.zeros(2, 4, 84, 84, dtype=torch.uint8)
    return obs, torch.zeros(2, dtype=torch.int64), obs
