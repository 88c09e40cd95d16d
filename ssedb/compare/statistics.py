"""Statistics of few seeds: aggregates, bootstrap intervals, probability of improvement, profiles.

Scores come by task (a game under a noise, say), one per run: `{"alien": [0.1, 0.3, 0.2], ...}`.
Tasks may have unequal numbers of runs. Every statistic takes a list of arrays [R, n_task, ...] and
reduces the runs away to [R, ...]; R is 1 for the estimate and the number of resamplings for its
interval. Intervals need scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypedDict, Unpack

import numpy as np

from ssedb.errors import require_installed

Array = np.ndarray[Any, np.dtype[np.float64]]
Numbers = Sequence[float] | Array
Scores = Mapping[str, Numbers]
Statistic = Callable[[list[Array]], Array]

REPS = 2000
CONFIDENCE = 0.95


class How(TypedDict, total=False):
    """Arguments of a bootstrap; see `bootstrap`."""

    reps: int
    seed: int
    widen: bool
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """Value with its interval; `low` and `high` are NaN if no task has two runs to resample.

    Of two methods that are compared, each needs such a task.
    """

    value: Any
    low: Any
    high: Any
    runs: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


# Aggregates over tasks and runs.


def mean(samples: list[Array]) -> Array:
    """Return the mean over tasks of the mean over runs."""
    return np.mean([s.mean(1) for s in samples], 0)


def median(samples: list[Array]) -> Array:
    """Return the median over tasks of the mean over runs."""
    return np.median([s.mean(1) for s in samples], 0)


def iqm(samples: list[Array]) -> Array:
    """Return the interquartile mean: of the middle half of all runs of all tasks together."""
    pooled = np.sort(np.concatenate(samples, 1), 1)
    cut = pooled.shape[1] // 4
    return pooled[:, cut : pooled.shape[1] - cut].mean(1)


def optimality_gap(samples: list[Array], goal: float = 1.0) -> Array:
    """Return the mean shortfall of runs below the goal; a run above it has none."""
    return goal - np.minimum(np.concatenate(samples, 1), goal).mean(1)


AGGREGATES: dict[str, Statistic] = {
    "iqm": iqm,
    "mean": mean,
    "median": median,
    "optimality_gap": optimality_gap,
}


# Intervals.


def bootstrap(scores: Scores, statistic: Statistic, **how: Unpack[How]) -> Estimate:
    """Compute a statistic and its bootstrap interval, stratified by task.

    The plain percentile interval is too short when runs are few: its spread is that of n - 1 runs,
    and it takes the normal's quantile for Student's. `widen` corrects both, which for the mean of
    one task gives the t interval.

    Args:
        scores: by task, one per run.
        statistic: of resampled scores.
        reps: resamplings.
        seed: of the resampling.
        widen: whether to widen the interval when runs are few.
        bounds: least and greatest value of the statistic.
    """
    return _bootstrap([scores], lambda sets: statistic(sets[0]), **how)


def improvement(first: Scores, second: Scores, **how: Unpack[How]) -> Estimate:
    """Return the probability that a run of the first beats one of the second, a tie being half.

    Tasks that only one of them has are an error: they cannot be compared.
    """
    if set(first) != set(second):
        odd = sorted(set(first) ^ set(second))
        raise ValueError(f"only one of the two has {odd[0]!r}; compare what both have")
    second = {task: second[task] for task in first}
    how["bounds"] = (0.0, 1.0)
    return _bootstrap([first, second], lambda sets: _beats(*sets), **how)


def _beats(first: list[Array], second: list[Array]) -> Array:
    shares = []
    for x, y in zip(first, second, strict=True):
        difference = x[:, :, None] - y[:, None, :]
        shares.append(((difference > 0) + 0.5 * (difference == 0)).mean((1, 2)))
    return np.mean(shares, 0)


def profile(scores: Scores, thresholds: Numbers, **how: Unpack[How]) -> Estimate:
    """Return the performance profile: the share of runs that score above each threshold."""
    taus = np.asarray(thresholds, float)

    def above(samples: list[Array]) -> Array:
        return (np.concatenate(samples, 1)[:, :, None] > taus).mean(1)

    how["bounds"] = (0.0, 1.0)
    return bootstrap(scores, above, **how)


def _bootstrap(
    sets: list[Scores], statistic: Callable[[list[list[Array]]], Array], **how: Unpack[How]
) -> Estimate:
    data = [[np.asarray(runs, float) for runs in scores.values()] for scores in sets]
    for scores, arrays in zip(sets, data, strict=True):
        for task, array in zip(scores, arrays, strict=True):
            if not array.size or not np.isfinite(array).all():
                raise ValueError(
                    f"the scores of {task!r} are {array.tolist()}; "
                    "leave out what has no value, and say so"
                )
    if not all(data):
        raise ValueError("there are no scores")
    value = statistic([[array[None] for array in arrays] for arrays in data])[0]
    strata = [array for arrays in data for array in arrays]
    runs, freedom = sum(len(s) for s in strata), sum(len(s) - 1 for s in strata)
    if any(all(len(array) == 1 for array in arrays) for arrays in data):
        nothing = np.full_like(value, math.nan)[()]
        return Estimate(_plain(value), _plain(nothing), _plain(nothing), runs)
    reps, tail = how.get("reps", REPS), (1 - CONFIDENCE) / 2
    generator = np.random.default_rng(how.get("seed", 0))
    drawn = [[a[generator.integers(len(a), size=(reps, len(a)))] for a in row] for row in data]
    low, high = np.quantile(statistic(drawn), [tail, 1 - tail], axis=0)
    if how.get("widen", True):
        student = _student_quantile(1 - tail, freedom)
        factor = math.sqrt(runs / freedom) * student / NormalDist().inv_cdf(1 - tail)
        low, high = value + factor * (low - value), value + factor * (high - value)
    low, high = np.clip((low, high), *how.get("bounds", (-math.inf, math.inf)))
    return Estimate(_plain(value), _plain(low), _plain(high), runs)


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value


def _student_quantile(p: float, freedom: int) -> float:
    require_installed("scipy", extra="report")
    from scipy.special import stdtrit

    return float(stdtrit(freedom, p))


# Curves.


def resample(steps: Numbers, values: Numbers, grid: Numbers) -> Array:
    """Interpolate a run's curve linearly on a grid of steps; NaN outside of its known values."""
    x, y, at = (np.asarray(a, float) for a in (steps, values, grid))
    known = np.isfinite(y)
    if not known.any():
        return np.full(len(at), math.nan)
    return np.interp(at, x[known], y[known], left=math.nan, right=math.nan)


def curve(
    runs: Mapping[str, Sequence[Array]], statistic: Statistic = mean, **how: Unpack[How]
) -> tuple[Estimate, Array]:
    """Compute a statistic along training of curves on one grid, and the runs at each point.

    A run counts as far as it goes. A point is NaN if a task has no run left there: fewer tasks
    would be another statistic.
    """
    stacked = {task: np.array(curves, float) for task, curves in runs.items()}
    points = next(iter(stacked.values())).shape[1]
    counts = np.isfinite(np.concatenate(list(stacked.values()))).sum(0).astype(float)
    found = np.full((3, points), math.nan)
    for i in range(points):
        here = {task: c[np.isfinite(c[:, i]), i].tolist() for task, c in stacked.items()}
        if all(here.values()):
            e = bootstrap(here, statistic, **how)
            found[:, i] = e.value, e.low, e.high
    total = sum(len(c) for c in stacked.values())
    return Estimate(found[0], found[1], found[2], total), counts


def area(steps: Numbers, values: Numbers) -> float:
    """Return the mean height of a curve between its first and its last known point."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 2 or x[-1] == x[0]:
        return float(y[0]) if len(y) else math.nan
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))
