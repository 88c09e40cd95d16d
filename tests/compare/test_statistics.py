"""The statistics against hand-made answers, rliable, SciPy, and the truth of synthetic data."""

import math

import numpy as np
import pytest
import scipy.stats

from ssedb.compare import statistics

RNG = np.random.default_rng(7)
SUITE = {f"game{i}": RNG.normal(i / 4, 0.5, 10) for i in range(6)}


def one(scores):
    return [np.asarray(runs, float)[None] for runs in scores.values()]


def test_aggregates_match_hand_computation():
    scores = {"a": [0.0, 1.0, 2.0, 9.0], "b": [4.0, 4.0, 4.0, 8.0]}
    assert statistics.mean(one(scores)) == pytest.approx([(3 + 5) / 2])
    assert statistics.median(one({**scores, "c": [10.0]})) == pytest.approx([5])
    assert statistics.iqm(one(scores)) == pytest.approx([(2 + 4 + 4 + 4) / 4])  # of 0 1 2 4 4 4 8 9
    assert statistics.optimality_gap(one({"a": [0.5, 3.0], "b": [0.0]})) == pytest.approx(
        [1 - 1.5 / 3]
    )


def test_improvement_over_a_single_run_has_no_interval():
    one, several = {"a": [1.0], "b": [2.0]}, {"a": [0.5, 0.6], "b": [3.0, 1.0]}
    for first, second in ((one, several), (several, one), (one, one)):
        found = statistics.improvement(first, second)
        assert np.isnan([found.low, found.high]).all()
    found = statistics.improvement(several, several)
    assert found.low < found.value < found.high


def test_improvement_matches_hand_computation():
    first, second = {"a": [3.0, 1.0], "b": [1.0, 1.0]}, {"a": [2.0, 0.0], "b": [1.0, 5.0]}
    assert statistics.improvement(first, second).value == pytest.approx(
        (3 / 4 + 1 / 4) / 2
    )  # ties count half
    assert statistics.improvement(first, first).value == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert statistics.improvement(second, first).value == pytest.approx(
        1 - statistics.improvement(first, second).value
    )
    with pytest.raises(ValueError, match="only one of the two has 'c'"):
        statistics.improvement(first, {**second, "c": [1.0]})


def test_improvement_pairs_tasks_by_name_and_stays_a_probability():
    first, second = {"a": [10.0, 11.0], "b": [0.0, 1.0]}, {"b": [-5.0, -4.0], "a": [5.0, 6.0]}
    assert statistics.improvement(first, second).value == 1
    near = statistics.improvement({"a": [1.0, 2.0]}, {"a": [0.0, 1.5]})
    assert 0 <= near.low <= near.high <= 1


def test_profile_matches_hand_computation():
    found = statistics.profile({"a": [0.0, 1.0], "b": [2.0, 3.0]}, [-1, 0, 1.5, 3])
    assert found.value.tolist() == [1, 0.75, 0.5, 0]
    assert (found.low <= found.value).all()
    assert (found.high >= found.value).all()
    assert found.low.min() >= 0
    assert found.high.max() <= 1


def test_statistics_match_rliable():
    from rliable import library, metrics  # slow to import

    matrix = np.array(list(SUITE.values())).T  # [runs, tasks]
    theirs = {
        "iqm": metrics.aggregate_iqm,
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    np.random.seed(0)  # rliable draws from the global generator whatever random_state it is given
    for name, function in theirs.items():
        ours = statistics.bootstrap(SUITE, statistics.AGGREGATES[name], widen=False, reps=4000)
        point, interval = library.get_interval_estimates(
            {"x": matrix}, lambda x, f=function: np.array([f(x)]), reps=4000
        )
        assert ours.value == pytest.approx(point["x"][0], abs=1e-12)
        width = interval["x"][1, 0] - interval["x"][0, 0]
        assert [ours.low, ours.high] == pytest.approx(interval["x"][:, 0], abs=0.06 * width)
    other = {task: runs + 0.2 for task, runs in SUITE.items()}
    ours = statistics.improvement(other, SUITE, widen=False)
    pair = [np.array(list(other.values())).T, matrix]
    point, interval = library.get_interval_estimates(
        {"x": pair}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=500
    )
    assert ours.value == pytest.approx(point["x"][0], abs=1e-12)
    assert [ours.low, ours.high] == pytest.approx(interval["x"][:, 0], abs=0.03)
    taus = np.linspace(-1, 2, 7)
    profiles, _ = library.create_performance_profile({"x": matrix}, taus, reps=5)
    assert statistics.profile(SUITE, taus, reps=10).value == pytest.approx(profiles["x"], abs=1e-12)


def test_bootstrap_of_the_mean_of_one_task_is_the_t_interval():
    runs = np.random.default_rng(3).normal(size=8)
    ours = statistics.bootstrap({"a": runs}, statistics.mean, reps=100_000)
    exact = scipy.stats.t.interval(0.95, 7, runs.mean(), runs.std(ddof=1) / math.sqrt(8))
    assert ours.high - ours.low == pytest.approx(exact[1] - exact[0], rel=0.03)


def test_widened_interval_of_several_tasks_has_the_freedom_of_all_their_runs():
    scores = {"a": [0.0, 1.0], "b": [2.0, 5.0], "c": [1.0, 1.5]}
    wide, plain = (statistics.bootstrap(scores, statistics.mean, widen=w) for w in (True, False))
    factor = math.sqrt(6 / 3) * scipy.stats.t.isf(0.025, 3) / scipy.stats.norm.isf(0.025)
    assert wide.high - wide.value == pytest.approx(factor * (plain.high - plain.value))
    assert wide.low - wide.value == pytest.approx(factor * (plain.low - plain.value))


def assert_coverage(draw, statistic, truth, trials):
    """Assert that a 95% interval holds the truth in 95% of the trials.

    The bound allows half a point of bias, and five standard errors of chance.
    """
    hits, generator = 0, np.random.default_rng(1)
    for trial in range(trials):
        found = statistics.bootstrap(draw(generator), statistic, reps=500, seed=trial)
        hits += found.low <= truth <= found.high
    assert abs(hits / trials - 0.95) < 0.005 + 5 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_bootstrap_of_the_mean_of_one_task_covers_the_truth(seeds):
    assert_coverage(lambda g: {"a": g.normal(1, 2, seeds)}, statistics.mean, 1, trials=2000)


@pytest.mark.parametrize("name", ["iqm", "mean"])
def test_bootstrap_over_a_suite_with_few_seeds_covers_the_truth(name):
    games = np.linspace(0, 3, 18)

    def draw(generator, seeds=5):
        return {str(i): generator.normal(game, 0.5, seeds) for i, game in enumerate(games)}

    truth = statistics.AGGREGATES[name](one(draw(np.random.default_rng(0), 50_000)))[0]
    assert_coverage(draw, statistics.AGGREGATES[name], truth, trials=800)


def test_bootstrap_of_the_same_scores_gives_the_same_interval():
    first, again = (statistics.bootstrap(SUITE, statistics.iqm, seed=5) for _ in range(2))
    assert first == again
    assert statistics.bootstrap(SUITE, statistics.iqm, seed=6) != first


def test_bootstrap_of_unequal_numbers_of_runs_and_of_one_run_is_defined():
    ragged = statistics.bootstrap({"a": [1.0, 2.0, 3.0], "b": [5.0]}, statistics.mean)
    assert ragged.value == pytest.approx((2 + 5) / 2)
    assert ragged.low < ragged.value < ragged.high
    assert ragged.runs == 4
    single = statistics.bootstrap({"a": [1.0], "b": [2.0]}, statistics.mean)
    assert single.value == 1.5
    assert math.isnan(single.low)
    assert math.isnan(single.high)


@pytest.mark.parametrize("bad", [{}, {"a": []}, {"a": [1.0, math.nan]}, {"a": [math.inf]}])
def test_missing_values_are_not_averaged(bad):
    with pytest.raises(ValueError, match="scores"):
        statistics.bootstrap(bad, statistics.mean)


def test_curves_are_interpolated_on_a_grid():
    grid = [0, 10, 15, 20, 30]
    found = statistics.resample([10, 20], [1.0, 2.0], grid)
    assert np.array_equal(found, [math.nan, 1, 1.5, 2, math.nan], equal_nan=True)
    skipped = statistics.resample(
        [10, 15, 20], [math.nan, 3.0, 2.0], grid
    )  # no episode had ended at step 10
    assert np.array_equal(skipped, [math.nan, math.nan, 3, 2, math.nan], equal_nan=True)
    assert np.isnan(statistics.resample([], [], grid)).all()


def test_curve_counts_runs_as_far_as_they_go():
    nan = math.nan
    runs = {"a": [np.array([1.0, 2, 3]), np.array([3.0, 4, nan])], "b": [np.array([5.0, 5, nan])]}
    found, counts = statistics.curve(runs)
    assert found.value[:2] == pytest.approx([(2 + 5) / 2, (3 + 5) / 2])
    assert math.isnan(found.value[2])  # b has nobody left
    assert counts.tolist() == [3, 3, 1]


def test_area_under_a_curve_matches_hand_computation():
    assert statistics.area([0, 1, 3], [0, 2, 2]) == pytest.approx((1 + 4) / 3)
    assert statistics.area([0, 5, 10], [math.nan, 1, 3]) == pytest.approx(2)
    assert statistics.area([5], [1.5]) == 1.5
    assert math.isnan(statistics.area([], []))


def test_share_band_stays_a_share():
    curves = {"task": [np.full(3, 0.01), np.full(3, 0.9)]}
    wide, _ = statistics.curve(curves)
    held, _ = statistics.curve(curves, bounds=(0.0, 1.0))
    assert wide.low.min() < 0
    assert wide.high.max() > 1
    assert (held.low.min(), held.high.max()) == (0, 1)
