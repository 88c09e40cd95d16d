"""Every equation against a computation that shares nothing with it."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from ssedb import objectives


@pytest.fixture
def gaussians():
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    std = torch.rand(7, 5, dtype=torch.float64, generator=generator) + 0.2
    return mean, std


def kl_by_hand(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Row by row from the definition for one dimension: log(1/s) + (s^2 + m^2)/2 - 1/2."""
    total = np.zeros(len(mean))
    for i in range(len(mean)):
        for m, s in zip(mean[i], std[i], strict=True):
            total[i] += math.log(1 / s) + (s**2 + m**2) / 2 - 0.5
    return total


def test_kl_matches_numpy_and_distributions(gaussians):
    mean, std = gaussians
    kl = objectives.kl_to_standard_normal(mean, std)
    np.testing.assert_allclose(kl, kl_by_hand(mean.numpy(), std.numpy()), rtol=1e-12)
    prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(std)), 1)
    torch.testing.assert_close(kl, kl_divergence(Independent(Normal(mean, std), 1), prior))


def test_upper_bound_is_the_mean_over_the_batch_of_the_sum_over_dimensions(gaussians):
    mean, std = gaussians
    expected = kl_by_hand(mean.numpy(), std.numpy()).mean()
    assert objectives.compression_upper_bound(mean, std).item() == pytest.approx(
        expected, rel=1e-12
    )


def test_predictive_bound_matches_numpy(gaussians):
    mean, _ = gaussians
    next_state = mean.flip(0)
    std = torch.linspace(0.3, 1.5, 7, dtype=torch.float64)[:, None]
    expected = 0.0
    for i in range(7):
        for j in range(5):
            s = std[i, 0].item()
            error = next_state[i, j].item() - mean[i, j].item()
            expected += math.log(math.exp(-0.5 * (error / s) ** 2) / (s * math.sqrt(2 * math.pi)))
    actual = objectives.predictive_lower_bound(next_state, mean, std).item()
    assert actual == pytest.approx(expected / 7, rel=1e-9)


def test_predictive_bound_matches_distributions_with_one_std_for_all(gaussians):
    mean, _ = gaussians
    next_state, std = mean.flip(1), torch.tensor(0.7, dtype=torch.float64)
    expected = Independent(Normal(mean, std), 1).log_prob(next_state).mean()
    torch.testing.assert_close(objectives.predictive_lower_bound(next_state, mean, std), expected)


def test_calibrated_std_is_the_best_single_std(gaussians):
    mean, _ = gaussians
    next_state = mean.flip(0)
    best = objectives.calibrated_std(next_state, mean)
    value = objectives.predictive_lower_bound(next_state, mean, best)
    for factor in (0.98, 1.02):
        assert objectives.predictive_lower_bound(next_state, mean, best * factor) < value


def test_calibrated_std_of_an_exact_prediction_is_a_thousandth(gaussians):
    mean, _ = gaussians
    assert objectives.calibrated_std(mean, mean).item() == pytest.approx(1e-3)
    assert objectives.calibrated_std(mean, mean + 0.01).item() == pytest.approx(0.01)


def test_scores_match_numpy():
    rng = np.random.default_rng(0)
    predicted, weight, actual = (
        rng.normal(size=(4, 3)),
        rng.normal(size=(3, 3)),
        rng.normal(size=(4, 3)),
    )
    expected = np.array([[p @ weight @ a for a in actual] for p in predicted])
    scores = objectives.bilinear_scores(*(torch.from_numpy(x) for x in (predicted, weight, actual)))
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_contrast_matches_numpy():
    scores = np.random.default_rng(1).normal(size=(6, 6)) * 3
    expected = np.mean(
        [math.log(math.exp(scores[i, i]) / sum(math.exp(s) for s in scores[i])) for i in range(6)]
    )
    assert objectives.contrastive_lower_bound(torch.from_numpy(scores)).item() == pytest.approx(
        expected, rel=1e-10
    )


def test_contrast_matches_hand_computation():
    # Two pairs; the right one of row 0 leads by log 3, that of row 1 trails by log 3.
    # So the probabilities are 3/4 and 1/4.
    scores = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    expected = (math.log(3 / 4) + math.log(1 / 4)) / 2
    assert objectives.contrastive_lower_bound(scores).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_contrast_is_never_above_zero_and_blind_guessing_is_minus_log_n(scale):
    scores = scale * torch.randn(50, 50, generator=torch.Generator().manual_seed(2))
    value = objectives.contrastive_lower_bound(scores).item()
    assert math.isfinite(value)
    assert value <= 0  # so the information it bounds, I_nce + log N, is at most log N
    if scale == 0:
        assert value == pytest.approx(-math.log(50), rel=1e-6)


def test_loss_weighs_and_signs_its_terms():
    terms = [torch.tensor(x) for x in (2.0, 3.0, 5.0)]
    assert objectives.db_loss(*terms, (0.1, 0.2, 0.3)).item() == pytest.approx(
        0.1 * 2 - 0.2 * 3 - 0.3 * 5
    )


def test_momentum_keeps_tau_of_the_old():
    old, new = torch.tensor([1.0, 2.0]), torch.tensor([11.0, 22.0])
    objectives.momentum_update([old], [new], tau=0.9)
    torch.testing.assert_close(old, torch.tensor([0.9 * 1 + 0.1 * 11, 0.9 * 2 + 0.1 * 22]))
    torch.testing.assert_close(new, torch.tensor([11.0, 22.0]))


def test_bonus_is_the_root_of_the_divergence(gaussians):
    mean, std = gaussians
    expected = kl_by_hand(mean.numpy(), std.numpy())
    np.testing.assert_allclose(objectives.db_bonus(mean, std), np.sqrt(expected), rtol=1e-12)
    np.testing.assert_allclose(objectives.db_bonus(mean, std, "none"), expected, rtol=1e-12)
    nothing = objectives.db_bonus(torch.zeros(3, 128), torch.ones(3, 128))
    torch.testing.assert_close(nothing, torch.zeros(3))


def test_masked_rows_do_not_count(gaussians):
    mean, std = gaussians
    mask = torch.tensor([True, False, True, True, False, True, True])
    next_state, scores = mean.flip(0), mean @ mean.T
    spoiled_mean, spoiled_scores = mean.clone(), scores.clone()
    spoiled_mean[~mask] = torch.nan
    spoiled_scores[~mask], spoiled_scores[:, ~mask] = torch.nan, torch.nan
    torch.testing.assert_close(
        objectives.compression_upper_bound(spoiled_mean, std, mask),
        objectives.compression_upper_bound(mean[mask], std[mask]),
    )
    torch.testing.assert_close(
        objectives.predictive_lower_bound(next_state, spoiled_mean, std[:, :1], mask),
        objectives.predictive_lower_bound(next_state[mask], mean[mask], std[mask, :1]),
    )
    torch.testing.assert_close(
        objectives.calibrated_std(next_state, spoiled_mean, mask),
        objectives.calibrated_std(next_state[mask], mean[mask]),
    )
    torch.testing.assert_close(
        objectives.contrastive_lower_bound(spoiled_scores, mask),
        objectives.contrastive_lower_bound(scores[mask][:, mask]),
    )


def test_masked_mean_of_a_batch_where_nothing_counts_is_zero(gaussians):
    mean, std = gaussians
    none = torch.zeros(7, dtype=torch.bool)
    assert objectives.compression_upper_bound(mean, std, none).item() == 0
    assert objectives.contrastive_lower_bound(mean @ mean.T, none).item() == 0
    leaf = mean.clone().requires_grad_()
    for mask, target in (
        (none, mean.flip(0)),
        (None, mean),
    ):  # nothing counts; all is predicted exactly
        std = objectives.calibrated_std(target, leaf, mask)
        objectives.predictive_lower_bound(target, leaf, std, mask).backward()
        assert leaf.grad.isfinite().all()


def test_gradients_match_finite_differences(gaussians):
    mean, std = (x[:4].clone().requires_grad_() for x in gaussians)
    next_state = gaussians[0][-4:].clone().requires_grad_()
    weight = torch.eye(5, dtype=torch.float64).requires_grad_()
    mask = torch.tensor([True, True, False, True])
    check = torch.autograd.gradcheck
    assert check(objectives.compression_upper_bound, (mean, std))
    assert check(lambda m, s: objectives.compression_upper_bound(m, s, mask), (mean, std))
    assert check(objectives.predictive_lower_bound, (next_state, mean, std))
    assert check(
        lambda s, m: objectives.predictive_lower_bound(s, m, objectives.calibrated_std(s, m)),
        (next_state, mean),
    )
    assert check(
        lambda p, w, a: objectives.contrastive_lower_bound(
            objectives.bilinear_scores(p, w, a), mask
        ),
        (mean, weight, next_state),
    )
    assert check(lambda m, s: objectives.db_bonus(m, s), (mean, std))
    assert check(
        lambda m, s, n: objectives.db_loss(
            objectives.compression_upper_bound(m, s),
            objectives.predictive_lower_bound(n, m, s),
            objectives.contrastive_lower_bound(m @ n.T),
            (0.1, 0.2, 0.3),
        ),
        (mean, std, next_state),
    )


def test_information_gain_matches_dense_linear_algebra():
    rng = np.random.default_rng(3)
    past, eta = rng.normal(size=(30, 4)), rng.normal(size=(6, 4))
    precision = 0.5 * np.eye(4) + sum(np.outer(row, row) for row in past)
    covariance = torch.from_numpy(np.linalg.inv(precision))
    # Of a Gaussian linear model: for each output half the log of det(Lambda)'s growth.
    expected = [
        7 / 2 * np.log(np.linalg.det(precision + np.outer(e, e)) / np.linalg.det(precision))
        for e in eta
    ]
    actual = objectives.information_gain(torch.from_numpy(eta), covariance, outputs=7)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_information_gain_of_features_far_from_zero_is_never_below_zero():
    draws = torch.randn(500, 32, generator=torch.Generator().manual_seed(0))
    eta = 1000 + 0.01 * draws  # rounding alone makes some quadratic forms negative
    precision = torch.eye(32, dtype=torch.float64) + eta.double().T @ eta.double()
    gain = objectives.information_gain(eta, torch.linalg.inv(precision).float(), 10)
    assert gain.min() >= 0


def test_squared_distances_match_a_loop_wherever_the_rows_lie():
    generator = torch.Generator().manual_seed(5)
    rows, others = torch.randn(40, 6, generator=generator), torch.randn(30, 6, generator=generator)
    others[:10] = rows[:10]
    expected = np.array(
        [[math.dist(row, other) ** 2 for other in others.tolist()] for row in rows.tolist()]
    )
    for shift in (0.0, 300.0):
        actual = objectives.squared_distances(rows + shift, others + shift)
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)
        assert actual[range(10), range(10)].max() < 1e-5
