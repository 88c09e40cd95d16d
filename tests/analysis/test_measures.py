"""Each measure on inputs whose answer is known."""

import numpy as np
import pytest
import torch

from ssedb.analysis import measures


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0, 2.0])
def test_noise_share_of_a_count_bonus_with_known_noise_is_exact(noise):
    counts = torch.randint(1, 50, (4000,), generator=rng())
    bonus = counts.double().rsqrt()
    bonus = bonus / bonus.std()  # variance 1 between transitions
    values = bonus + noise * torch.randn(8, 4000, generator=rng(1), dtype=torch.float64)
    assert measures.noise_share(values) == pytest.approx(noise**2 / (1 + noise**2), abs=0.02)
    assert measures.rank_correlation(bonus, counts.double().rsqrt()) == pytest.approx(1)


def test_noise_share_of_vectors_weighs_every_dimension():
    signal, noise = (
        torch.randn(1, 5000, 2, generator=rng()),
        torch.randn(6, 5000, 2, generator=rng(1)),
    )
    values = torch.cat(
        [signal.repeat(6, 1, 1), 3 * noise], -1
    )  # two of pure signal, two of pure noise with variance 9
    assert measures.noise_share(values) == pytest.approx(18 / 20, abs=0.01)


def test_noise_share_of_pure_noise_is_one_and_of_a_constant_zero():
    assert measures.noise_share(torch.randn(8, 3000, generator=rng())) > 0.97
    # Dimensions whose noise happens to look like signal are weighed against the others.
    assert measures.noise_share(torch.randn(4, 20, 500, generator=rng())) > 0.97
    assert measures.noise_share(torch.ones(8, 100)) == 0


def test_rank_correlation_of_known_ranks_matches_hand_computation():
    assert measures.rank_correlation(
        torch.tensor([1.0, 2, 3]), torch.tensor([10.0, 100, 1000])
    ) == pytest.approx(1)
    assert measures.rank_correlation(
        torch.tensor([1.0, 2, 3]), torch.tensor([3.0, 2, 1])
    ) == pytest.approx(-1)
    # Ties share their mean rank: (1.5, 1.5, 3, 4) against (4, 1, 2, 3).
    # With fewer than three levels any rank of the ties would do.
    expected = np.corrcoef([1.5, 1.5, 3, 4], [4, 1, 2, 3])[0, 1]
    found = measures.rank_correlation(torch.tensor([5.0, 5, 9, 11]), torch.tensor([4.0, 1, 2, 3]))
    assert found == pytest.approx(expected)
    assert measures.rank_correlation(torch.ones(5), torch.arange(5.0)) == 0


def test_linear_probe_finds_linear_relations_alone():
    features = torch.randn(4000, 10, generator=rng())
    target = features[:, :2] @ torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    noisy = target + torch.randn(target.shape, generator=rng(2)) * target.std(0)
    assert measures.explained_share(features, target) > 0.999
    assert measures.explained_share(features, noisy) == pytest.approx(0.5, abs=0.05)
    assert measures.explained_share(features, torch.randn(4000, 2, generator=rng(3))) < 0.02
    classes = features[:, :4].argmax(1)
    assert measures.probe_accuracy(features, classes) > 0.9
    assert measures.probe_accuracy(
        features, torch.randint(4, (4000,), generator=rng(4))
    ) == pytest.approx(0.25, abs=0.05)


def test_explained_share_is_of_the_spread_about_the_mean_and_never_negative():
    features = torch.randn(2000, 5, generator=rng())
    target = 10 + torch.randn(2000, 1, generator=rng(1))
    assert measures.explained_share(features, target) == 0  # the mean alone explains nothing
    assert measures.explained_share(features, 10 + features[:, :1]) > 0.999


def test_linear_fit_of_a_row_does_not_depend_on_the_other_held_out_rows():
    generator = torch.Generator().manual_seed(0)
    features, targets = (torch.randn(40, n, generator=generator) for n in (3, 2))
    before = measures.linear_fit(features, targets)
    features[-1] = 1e4
    torch.testing.assert_close(measures.linear_fit(features, targets)[:-1], before[:-1])
