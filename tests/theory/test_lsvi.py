"""The problems are what they say, and the fast LSVI-UCB is Algorithm 2."""

import itertools

import numpy as np
import pytest

from ssedb.theory import mdps, regret
from ssedb.theory.lsvi import Regression, Setting, bonus_of, plan, run_lsvi


def problems(copies=3, seed=0, length=6):
    rng = np.random.default_rng(seed)
    return [
        mdps.river_swim(copies),
        mdps.combination_lock(rng, copies, length),
        mdps.random_linear(rng, copies),
    ]


@pytest.mark.parametrize("mdp", problems(), ids=lambda mdp: mdp.name)
def test_problems_are_linear_mdps(mdp):
    assert (mdp.kernel >= 0).all()
    assert np.allclose(mdp.kernel.sum(-1), 1)
    assert (np.linalg.norm(mdp.features, axis=-1) <= 1 + 1e-12).all()
    assert ((mdp.rewards >= 0) & (mdp.rewards <= 1)).all()
    for features, kernel, rewards in zip(mdp.features, mdp.kernel, mdp.rewards, strict=True):
        weights, *_ = np.linalg.lstsq(features, np.column_stack([kernel, rewards]), rcond=None)
        assert np.allclose(features @ weights, np.column_stack([kernel, rewards]))
    assert mdp.is_tabular == (mdp.name != "random linear")


def test_lock_has_one_way_through():
    mdp = mdps.combination_lock(np.random.default_rng(1), 4, length=3, actions=2)
    assert mdp.best_values() == pytest.approx([0.9**2] * 4)
    kernel, rewards = mdp.kernel.reshape(4, 4, 2, 4), mdp.rewards.reshape(4, 4, 2)
    for copy in range(4):
        earned = []
        for code in itertools.product(range(2), repeat=3):
            state, total = np.eye(4)[0], 0.0
            for t in range(3):
                total += state @ rewards[copy, :, code[t]]
                state = state @ kernel[copy, :, code[t]]
            earned.append(total)
        assert sorted(earned)[-1] == pytest.approx(
            0.81
        )  # the second best, right but for the last action, earns 0.081
        assert sorted(earned)[-2] < 0.3


def test_river_swim_is_the_textbook_one():
    mdp = mdps.river_swim(1)
    assert mdp.kernel[0].reshape(6, 2, 6)[2].tolist() == [
        [0, 1, 0, 0, 0, 0],
        [0, 0.05, 0.6, 0.35, 0, 0],
    ]
    assert mdp.kernel[0].reshape(6, 2, 6)[5, 1].tolist() == [0, 0, 0, 0, 0.4, 0.6]
    assert mdp.kernel[0].reshape(6, 2, 6)[0, 1].tolist() == [0.4, 0.6, 0, 0, 0, 0]
    assert mdps.river_swim(1, horizon=1).best_values() == pytest.approx([0.005])


@pytest.mark.parametrize("lam", [1.0, 0.3])
def test_regression_when_incremental_matches_dense(lam):
    mdp, rng, rounds = (
        mdps.random_linear(np.random.default_rng(2), 2),
        np.random.default_rng(3),
        400,
    )
    model = Regression(mdp, 3, lam)
    shape = (rounds, mdp.horizon, 3, 2)
    pairs, after = (
        rng.integers(mdp.states * mdp.actions, size=shape),
        rng.integers(mdp.states, size=shape),
    )
    rewards = rng.random(shape)
    for i in range(rounds):
        model.add(pairs[i], rewards[i], after[i])
    for t, k, n in [(0, 0, 0), (3, 2, 1), (7, 1, 0)]:
        eta = mdp.features[n, pairs[:, t, k, n]]
        inverse = np.linalg.inv(eta.T @ eta + lam * np.eye(eta.shape[1]))
        assert np.allclose(model.inverse[t, k, n], inverse, atol=1e-12)
        assert np.allclose(model.reward[t, k, n], inverse @ eta.T @ rewards[:, t, k, n], atol=1e-10)
        assert np.allclose(
            model.next_state[t, k, n],
            inverse @ eta.T @ np.eye(mdp.states)[after[:, t, k, n]],
            atol=1e-10,
        )
        widths = np.einsum("pi,ij,pj->p", mdp.features[n], inverse, mdp.features[n])
        assert np.allclose(model.squared_widths[t, k, n], widths, rtol=1e-9, atol=1e-13)
        assert np.array_equal(
            model.counts[t, k, n], np.bincount(pairs[:, t, k, n], minlength=len(widths))
        )


def algorithm_2(mdp, copy, setting, episodes, rng, lam):
    """One seed, from the paper's lines: all data is kept, and every regression is solved afresh."""
    d, eta = mdp.features.shape[-1], mdp.features[copy]
    ties = 1e-9 * rng.random((mdp.horizon, mdp.copies, mdp.states, mdp.actions))[:, copy]
    seen = [[] for _ in range(mdp.horizon)]
    found = []
    for _ in range(episodes):
        values, policy = np.zeros(mdp.states), [None] * mdp.horizon
        for t in reversed(range(mdp.horizon)):
            gram, right, counts = lam * np.eye(d), np.zeros(d), np.zeros(len(eta))
            for pair, reward, after in seen[t]:
                gram += np.outer(eta[pair], eta[pair])
                right += eta[pair] * (reward + values[after])
                counts[pair] += 1
            widths = np.einsum("pi,ij,pj->p", eta, np.linalg.inv(gram), eta)
            bonus = {
                "ucb": widths**0.5,
                "db": np.log(1 + widths) ** 0.5,
                "count": (counts + lam) ** -0.5,
            }[setting.kind]
            q = np.minimum(eta @ np.linalg.solve(gram, right) + setting.beta * bonus, mdp.horizon)
            q = q.reshape(mdp.states, mdp.actions)
            policy[t], values = (q + ties[t]).argmax(1), q.max(1)
        true = np.zeros(mdp.states)
        for t in reversed(range(mdp.horizon)):
            chosen = np.arange(mdp.states) * mdp.actions + policy[t]
            true = mdp.rewards[copy, chosen] + mdp.kernel[copy, chosen] @ true
        found.append(mdp.best_values()[copy] - true[0])
        state, chance = 0, rng.random((mdp.horizon, mdp.copies, 1))[:, copy, 0]
        for t in range(mdp.horizon):
            pair = state * mdp.actions + policy[t][state]
            after = min(
                int(np.searchsorted(mdp.kernel[copy, pair].cumsum(), chance[t])), mdp.states - 1
            )
            seen[t].append((pair, mdp.rewards[copy, pair], after))
            state = after
    return np.array(found)


@pytest.mark.parametrize("mdp", problems(2, length=3), ids=lambda mdp: mdp.name.replace(" ", "-"))
def test_fast_path_is_algorithm_2(mdp):
    capped = Setting("ucb", 9.0)  # often above the horizon
    settings = [Setting("ucb", 1.0), Setting("db", 2.0), Setting("count", 0.5), capped]
    lam, episodes = 0.8, 40
    fast = run_lsvi(mdp, settings, episodes, np.random.default_rng(5), lam)
    for i, setting in enumerate(settings):
        slow = algorithm_2(mdp, 1, setting, episodes, np.random.default_rng(5), lam)
        assert np.allclose(fast[i, 1], slow, atol=1e-7)
    assert np.ptp(fast) > 1e-3  # it is not all the same policy


def test_bonuses_obey_the_theorems():
    squared, counts = np.array([1.0, 0.5, 1 / 11]), np.array([0.0, 1.0, 10.0])
    ucb, db, count = (bonus_of(kind, squared, counts, 1.0) for kind in ("ucb", "db", "count"))
    assert (db <= ucb).all()
    assert (ucb <= np.sqrt(2) * db).all()
    assert count == pytest.approx([1, 2**-0.5, 11**-0.5])
    assert db == pytest.approx(np.sqrt(np.log(1 + squared)))
    assert (bonus_of("none", squared, counts, 1.0) == 0).all()


def test_counts_in_tabular_problems_are_ucb_and_explore():
    mdp = mdps.combination_lock(np.random.default_rng(0), 6, length=4)
    settings = [Setting("ucb", 1.0), Setting("count", 1.0), Setting("db", 1.0), Setting("none", 0)]
    ucb, count, db, none = run_lsvi(mdp, settings, 300, np.random.default_rng(1))
    assert np.allclose(ucb, count)
    assert (ucb.sum(-1) < none.sum(-1) / 3).all()
    assert (db.sum(-1) < none.sum(-1) / 3).all()
    assert np.abs(ucb[:, -50:]).mean() < 0.05 * mdp.best_values()[0]


def test_optimism_with_nothing_known_is_the_maximum():
    mdp = mdps.river_swim(1)
    model = Regression(mdp, 1)
    _, earned = plan(
        model, np.full((mdp.horizon, 1, 1, 12), 100.0), np.zeros((mdp.horizon, 1, 6, 2))
    )
    assert earned[0, 0] == pytest.approx(
        12 * 0.005
    )  # everything is capped alike, so the first action, left, is taken


def test_growth_finds_the_exponent():
    k = np.arange(1, 5001)
    points = np.unique(np.geomspace(500, 5000, 30).astype(int))
    for exponent in (0.5, 1.0):
        total = 3 * k**exponent
        assert regret.growth(np.diff(total, prepend=0.0)[None], points) == pytest.approx(exponent)


def test_interval_of_a_mean_has_the_right_width():
    values = np.random.default_rng(7).normal(5, 2, 400)
    low, high = regret.interval(lambda chosen: values[chosen].mean(-1), 400)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_quick_regret_part_tells_good_from_none(monkeypatch):
    monkeypatch.setattr(
        regret, "PROBLEMS", (lambda rng, n: mdps.combination_lock(rng, n, length=4),)
    )
    monkeypatch.setattr(regret, "BETAS", (0.5, 1.0))
    shares = []
    claims, data = regret.regret(True, 0, shares.append)
    assert shares[-1] == 1
    assert shares == sorted(shares)
    slopes = claims[0].values["exponents"]
    assert claims[0].verdict == "holds"
    assert slopes["ucb"] == pytest.approx(slopes["count"])
    assert slopes["db"] < 0.5 < 0.9 < slopes["none"]
    assert claims[2].values["count"] == pytest.approx(1)
    assert 0.9 < claims[2].values["ratio"] < 2
    assert len(data["problems"]["combination lock"]["curves"]["ucb"]["mean"]) > 30
