"""The judgement of regrets, on curves whose growth is known, and the search for beta."""

import math

import numpy as np
import pytest

from ssedb.theory import mdps, regret
from ssedb.theory.lsvi import Setting

EPISODES, SEEDS = 2000, 6
BEST = [Setting(kind, 1.0) for kind in regret.KINDS]


def of_total(total):
    """Regret of each episode [SEEDS, EPISODES], alike for all seeds, from its sum so far."""
    return np.broadcast_to(np.diff(total, prepend=0.0), (SEEDS, len(total)))


def power(exponent, size=1.0):
    return of_total(size * np.arange(1, EPISODES + 1) ** exponent)


def compare(*found):
    return regret.compare(mdps.river_swim(SEEDS), BEST, np.stack(found))


def test_within_needs_the_whole_interval():
    assert regret.within(0.5, 0.9, 0, 1) == "holds"
    assert regret.within(0.5, 1.1, 0, 1) == "unclear"
    assert regret.within(1.1, 1.2, 0, 1) == "fails"
    assert regret.within(-0.3, -0.2, -0.1, 0.1) == "fails"


def test_compare_measures_exponents_their_difference_and_the_ratio():
    slower, alike, factor = compare(power(0.3), power(0.36, 1.1), power(0.3), power(1.0))
    exponents = {"ucb": 0.3, "db": 0.36, "count": 0.3, "none": 1.0}
    assert slower.values["exponents"] == pytest.approx(exponents)
    assert alike.values["difference"] == pytest.approx(0.06)
    ratio = 1.1 * EPISODES**0.06  # 1.74, above sqrt(2)
    assert factor.values["ratio"] == pytest.approx(ratio)
    assert factor.values["interval"] == pytest.approx([ratio, ratio])
    assert [claim.verdict for claim in (slower, alike, factor)] == ["holds", "holds", "fails"]


def test_compare_fails_a_regret_that_grows_with_the_episodes_for_one_of_ucb_and_db():
    assert compare(power(0.3), power(1.1), power(0.3), power(1.0))[0].verdict == "fails"
    assert compare(power(1.1), power(0.3), power(0.3), power(1.0))[0].verdict == "fails"


def test_compare_fits_exponents_to_the_last_half_of_the_episodes():
    flat = of_total(np.minimum(np.arange(1.0, EPISODES + 1), EPISODES // 2))
    exponents = compare(flat, flat, flat, flat)[0].values["exponents"]
    assert exponents["ucb"] == pytest.approx(0, abs=1e-6)


def test_search_takes_the_beta_of_least_regret_and_that_of_ucb_for_counts(monkeypatch):
    runs, best = [], {"ucb": 1, "db": 2, "count": 0}  # log2 of beta

    def run_lsvi(mdp, settings, episodes, rng, tell=None):
        runs.append(settings)
        off = [abs(math.log2(beta) - best[kind]) if beta else 9 for kind, beta in settings]
        return np.broadcast_to(0.1 + np.array(off)[:, None, None], (len(off), mdp.copies, episodes))

    monkeypatch.setattr(regret, "run_lsvi", run_lsvi)
    monkeypatch.setattr(regret, "PROBLEMS", (lambda rng, copies: mdps.river_swim(copies),))
    regret.regret(True, 0, lambda share: None)
    searched, taken = runs
    assert taken == [("ucb", 2), ("db", 4), ("count", 2), ("none", 0)]
    for kind in ("ucb", "db"):
        betas = [beta for other, beta in searched if other == kind]
        assert (betas[0], betas[-1]) == (0.5, 8)
        assert np.divide(betas[1:], betas[:-1]) == pytest.approx(math.sqrt(2))
