"""Theorems 1 and 2 against computations that share no code; a wrong constant breaks each."""

import numpy as np
import pytest

from ssedb.theory import gain


def problem(rng, m=7, d=3, c=2):
    return rng.normal(size=(m, d)), rng.normal(size=(m, c)), rng.normal(size=d)


def posterior(data, targets, lam):
    """Return the posterior of W: its mean [c, d] and its precision Lambda [d, d]."""
    precision = gain.gram(data, lam)
    return np.linalg.solve(precision, data.T @ targets).T, precision


def test_posterior_matches_conditioning_the_joint_gaussian():
    rng, lam = np.random.default_rng(0), 0.7
    data, targets, _ = problem(rng)
    mean, precision = posterior(data, targets, lam)
    # One row w of W: (w, y) is jointly Gaussian; condition on y.
    cross, of_y = data / lam, data @ data.T / lam + np.eye(len(data))
    assert np.allclose(mean, (cross.T @ np.linalg.solve(of_y, targets)).T)
    assert np.allclose(
        np.linalg.inv(precision), np.eye(3) / lam - cross.T @ np.linalg.solve(of_y, cross)
    )


def test_gain_is_the_expected_divergence_of_the_new_posterior_from_the_old():
    """The definition of the mutual information, with sampled next states."""
    rng, c, lam = np.random.default_rng(1), 2, 1.0
    data, targets, eta = problem(rng, c=c)
    mean, precision = posterior(data, targets, lam)
    covariance = np.linalg.inv(precision)
    spread = 1 + eta @ covariance @ eta  # of each entry of S' given the data
    drawn = mean @ eta + np.sqrt(spread) * rng.normal(size=(20_000, c))
    divergences = []
    for s in drawn:
        new_mean, new_precision = posterior(np.vstack([data, eta]), np.vstack([targets, s]), lam)
        new = np.linalg.inv(new_precision)
        move = new_mean - mean
        trace = (
            np.trace(precision @ new)
            - len(eta)
            + np.linalg.slogdet(covariance)[1]
            - np.linalg.slogdet(new)[1]
        )
        divergences.append((c * trace + np.einsum("ci,ij,cj", move, precision, move)) / 2)
    found = gain.information_gain(gain.squared_width(precision, eta), c)
    assert np.mean(divergences) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize(
    ("d", "m", "c", "lam"), [(1, 0, 1, 1.0), (4, 9, 3, 1.0), (5, 2, 4, 0.2), (3, 30, 2, 5.0)]
)
def test_gain_in_closed_form_matches_determinants(d, m, c, lam):
    rng = np.random.default_rng(2)
    data, eta = rng.normal(size=(6, m, d)), rng.normal(size=(6, d))
    fast = gain.information_gain(gain.squared_width(gain.gram(data, lam), eta), c)
    assert np.allclose(fast, gain.gain_by_determinants(data, eta, c, lam), atol=1e-12)
    # The determinants themselves, on one problem, with Kronecker products.
    before = np.kron(np.eye(c), data[0].T @ data[0] + lam * np.eye(d))
    after = before + np.kron(np.eye(c), np.outer(eta[0], eta[0]))
    assert fast[0] == pytest.approx(np.log(np.linalg.det(after) / np.linalg.det(before)) / 2)


def test_bounds_of_theorem_1_hold_and_their_constants_are_right():
    draws = gain.random_problems(np.random.default_rng(3), 10_000)
    assert len(draws.gains) >= 10_000
    assert 0.99 < draws.squared_widths.max() <= 1 + 1e-12
    root, (low, high) = np.sqrt(draws.gains), gain.ucb_bounds(draws.squared_widths, draws.outputs)
    assert (low <= root + 1e-12).all()
    assert (root <= high + 1e-12).all()
    assert (root / high).max() > 0.9999  # a larger upper constant would leave a gap,
    assert (root / low).min() < np.sqrt(
        2 * np.log(2)
    ) + 1e-3  # and the lower one is loose by exactly this
    assert (root / low).min() > np.sqrt(2 * np.log(2)) - 1e-9
    assert np.allclose(low, np.sqrt(draws.outputs * draws.squared_widths) / 2)
    assert np.allclose(high, np.sqrt(draws.outputs * draws.squared_widths / 2))


@pytest.mark.parametrize(("norm", "lam"), [(3.0, 1.0), (1.0, 0.1)])
def test_lower_bound_outside_the_assumptions_fails_only_where_it_should(norm, lam):
    draws = gain.random_problems(np.random.default_rng(4), 4_000, norm, lam)
    root, (low, high) = np.sqrt(draws.gains), gain.ucb_bounds(draws.squared_widths, draws.outputs)
    assert np.array_equal(root < low, draws.squared_widths > gain.WIDEST)
    assert (root < low).mean() > 0.1
    assert (root <= high).all()


def test_widest_solves_its_equation():
    assert np.log1p(gain.WIDEST) == pytest.approx(gain.WIDEST / 2, rel=1e-14)


@pytest.mark.parametrize("lam", [0.5, 1.0, 3.0])
def test_theorem_2_holds_with_its_error(lam):
    visits = gain.tabular_visits([0, 1, 2, 10, 100, 10_000], states=5, actions=3, lam=lam)
    total = visits.counts + lam
    ratio = visits.bonus / visits.predicted
    assert np.allclose(ratio, np.sqrt(total * np.log1p(1 / total)), rtol=1e-12)
    assert np.allclose(visits.bonus, np.sqrt(2.5 * np.log((total + 1) / total)), rtol=1e-12)
    assert ((1 - ratio) * 4 * total)[-1] == pytest.approx(
        1, rel=1e-3
    )  # N in place of N + lambda misses this by far
    assert (np.diff(ratio) > 0).all()
