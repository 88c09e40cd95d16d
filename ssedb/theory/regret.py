"""Regret of LSVI with the UCB, the DB and the count bonus: curves, growth and comparison."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ssedb.theory.claims import Claim, Section, Tell, Verdict, verdict
from ssedb.theory.lsvi import Kind, Setting, run_lsvi
from ssedb.theory.mdps import MDP, Array, combination_lock, random_linear, river_swim

KINDS: tuple[Kind, ...] = ("ucb", "db", "count")
BETAS = tuple(2.0 ** (k / 2) for k in range(-2, 7))
"""Betas of the search: 0.5 to 8 in steps of sqrt(2), the ratio of Theorem 1's bounds."""
PROBLEMS: tuple[Callable[[np.random.Generator, int], MDP], ...] = (
    lambda rng, copies: river_swim(copies),
    combination_lock,
    random_linear,
)


def search(
    mdp: MDP, episodes: int, rng: np.random.Generator, tell: Tell
) -> dict[Kind, list[float]]:
    """Return the mean regret of each bonus for each of BETAS.

    With one-hot features the count bonus is the UCB bonus.
    """
    kinds = KINDS[:2] if mdp.is_tabular else KINDS
    settings = [Setting(kind, beta) for kind in kinds for beta in BETAS]
    total = run_lsvi(mdp, settings, episodes, rng, tell=tell)
    found = dict(zip(kinds, total.sum(-1).mean(-1).reshape(len(kinds), -1).tolist(), strict=True))
    return {"count": found["ucb"], **found}


def growth(regret: Array, points: Array) -> Array:
    """Fit the exponent of K in the summed regret by least squares.

    Args:
        regret: of each episode, [..., n, episodes].
        points: K, log-spaced.

    Returns:
        Exponents, [..., n].
    """
    log_regret = np.log(np.maximum(regret.cumsum(-1)[..., points - 1], 1e-12))
    slopes = np.polyfit(np.log(points), log_regret.reshape(-1, len(points)).T, 1)[0]
    return slopes.reshape(regret.shape[:-1])


def interval(statistic: Callable[[Array], Array], seeds: int) -> tuple[Array, Array]:
    """Return the 95% bootstrap interval of a statistic over seeds, its ends [...].

    Args:
        statistic: function of drawn seeds, int [draws, seeds], to values [draws, ...].
        seeds: how many there are.
    """
    chosen = np.random.default_rng(0).integers(seeds, size=(2000, seeds))
    low, high = np.quantile(statistic(chosen), (0.025, 0.975), axis=0)
    return low, high


def regret(quick: bool, seed: int, tell: Tell) -> Section:
    """Measure the regret in all MDPs, with betas searched on other seeds."""
    seeds, tuning, episodes = (8, 3, 600) if quick else (20, 4, 5000)
    claims: list[Claim] = []
    data: dict[str, Any] = {"betas": BETAS, "seeds": seeds, "episodes": episodes, "problems": {}}
    for i, make in enumerate(PROBLEMS):

        def tell_half(share: float, half: int, i: int = i) -> None:
            tell((i + (half + share) / 2) / len(PROBLEMS))

        rng = np.random.default_rng((seed, i))
        searched = search(make(rng, tuning), episodes, rng, lambda share: tell_half(share, 0))
        best = [Setting(kind, BETAS[int(np.argmin(searched[kind]))]) for kind in KINDS]
        mdp = make(rng, seeds)
        settings = [*best, Setting("none", 0)]
        found = run_lsvi(mdp, settings, episodes, rng, tell=lambda share: tell_half(share, 1))
        claims += compare(mdp, best, found)
        problem = {"search": searched, "betas": [s.beta for s in best], "curves": curves(found)}
        data["problems"][mdp.name] = problem
    return claims, data


def curves(found: Array) -> dict[str, Any]:
    """Return the summed regret along the episodes, its mean and interval over seeds."""
    points = np.unique(np.geomspace(1, found.shape[-1], 60).astype(int))
    lines: dict[str, Any] = {"episodes": points.tolist()}
    for kind, total in zip((*KINDS, "none"), found.cumsum(-1)[..., points - 1], strict=True):
        low, high = interval(partial(_mean_of_chosen, total), len(total))
        lines[kind] = {"mean": total.mean(0).tolist(), "low": low.tolist(), "high": high.tolist()}
    return lines


def _mean_of_chosen(total: Array, chosen: Array) -> Array:
    return total[chosen].mean(1)


def within(low: float, high: float, least: float, most: float) -> Verdict:
    """Judge whether an interval lies within limits; unclear if it reaches over one."""
    if least <= low and high <= most:
        return "holds"
    return "fails" if low > most or high < least else "unclear"


def compare(mdp: MDP, best: list[Setting], found: Array) -> list[Claim]:
    """Judge the claims of one MDP.

    Args:
        mdp: the MDP.
        best: the settings of ucb, db and count.
        found: regret of each episode, [ucb / db / count / none, n, episodes].
    """
    seeds, episodes = found.shape[1:]
    points = np.unique(np.geomspace(episodes / 2, episodes, 30).astype(int))
    slopes = growth(found, points)
    ucb, db, count, none = found.sum(-1)
    size = f"{mdp.states} states, {mdp.actions} actions, horizon {mdp.horizon}"
    setting = f"{mdp.name} ({size}, d = {mdp.features.shape[-1]}), {seeds} seeds"
    setting += f", {episodes:,} episodes"
    betas = ", ".join(f"{kind} {beta:.3g}" for kind, beta in best)

    means = dict(zip((*KINDS, "none"), slopes.mean(-1).tolist(), strict=True))
    below = interval(lambda chosen: slopes[:2][:, chosen].mean(-1).T, seeds)[1].tolist()
    apart = slopes[1] - slopes[0]
    low, high = map(float, interval(lambda chosen: apart[chosen].mean(-1), seeds))
    ends = interval(lambda chosen: db[chosen].mean(-1) / ucb[chosen].mean(-1), seeds)
    least, most = map(float, ends)
    ratio, counted, without = (x.mean() / ucb.mean() for x in (db, count, none))
    others = f"count / UCB {counted:.3f}, no bonus / UCB {without:.2f}"
    return [
        Claim(
            "regret of UCB and DB grows slower than the episodes",
            f"{setting}; best beta: {betas}",
            "exponent of K " + ", ".join(f"{kind} {slope:.2f}" for kind, slope in means.items()),
            verdict(max(below) < 1),
            {"exponents": means, "upper_end": below, "betas": dict(best)},
        ),
        Claim(
            "DB's regret grows like UCB's (exponents within 0.1)",
            mdp.name,
            f"DB - UCB {apart.mean():+.3f} (95%: {low:+.3f} to {high:+.3f})",
            within(low, high, -0.1, 0.1),
            {"difference": apart.mean(), "interval": [low, high]},
        ),
        Claim(
            "DB's regret is UCB's, to the factor sqrt(2) of Theorem 1",
            mdp.name,
            f"DB / UCB {ratio:.3f} (95%: {least:.3f} to {most:.3f}); {others}",
            within(least, most, 0, math.sqrt(2)),
            {"ratio": ratio, "interval": [least, most], "count": counted},
        ),
    ]
