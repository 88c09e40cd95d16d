"""Claims of Theorems 1 and 2 and of Appendix A: measurements and verdicts.

A section returns its claims and the data of its figure, in types that JSON can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from ssedb.theory import contrast, gain

Verdict = Literal["holds", "fails", "unclear"]
Tell = Callable[[float], None]
"""Callback with the share of a section that is done, from 0 to 1."""


@dataclass(frozen=True)
class Claim:
    """Row of the table: a claim, its setting, the measurement and the verdict."""

    claim: str
    setting: str
    measured: str
    verdict: Verdict
    values: dict[str, Any] = field(default_factory=dict)


Section = tuple[list[Claim], dict[str, Any]]
"""Claims, and the data of their figure."""


def verdict(holds: bool | np.bool_) -> Verdict:
    """Name the verdict of a claim that either holds or fails."""
    return "holds" if holds else "fails"


def theorem1(quick: bool, seed: int, tell: Tell) -> Section:
    """Measure Theorem 1, sqrt(c/4) u <= sqrt(I) <= sqrt(c/2) u, in and beyond its assumptions."""
    claims: list[Claim] = []
    data: dict[str, Any] = {}
    for done, (norm, lam) in enumerate(((1.0, 1.0), (3.0, 1.0), (1.0, 0.1))):
        draws = gain.random_problems(np.random.default_rng((seed, done)), 12_000, norm, lam)
        setting = f"{len(draws.gains):,} draws, norms <= {norm:g}, lambda = {lam:g}"
        judges = (broken,) if done else (closed_form, sandwich)
        claims += [judge(draws, setting) for judge in judges]
        ratio = against_bounds(draws)[2]
        shown = {"squared_width": draws.squared_widths[::8].tolist(), "ratio": ratio[::8].tolist()}
        data[f"norm {norm:g}, lambda {lam:g}"] = shown
        tell((done + 1) / 3)
    return claims, data


def closed_form(draws: gain.Draws, setting: str) -> Claim:
    """Compare I = c/2 log(1 + u^2) with log-determinants."""
    error = float(np.abs(draws.gains - draws.by_determinants).max())
    return Claim(
        "I = c/2 log(1 + u^2)",
        f"{setting}; against log-determinants of the cd x cd posterior",
        f"largest difference {error:.1e} nats of up to {draws.gains.max():.2f}",
        verdict(error < 1e-10),
        {"largest_difference": error},
    )


def sandwich(draws: gain.Draws, setting: str) -> Claim:
    """Count the draws that lie outside of Theorem 1's bounds."""
    under, over, ratio = against_bounds(draws)
    below, above = int(under.sum()), int(over.sum())
    low, high = float(ratio.min()), float(ratio.max())
    return Claim(
        "sqrt(c/4) u <= sqrt(I) <= sqrt(c/2) u",
        setting,
        f"{below} below, {above} above; sqrt(I) / (sqrt(c/2) u) from {low:.4f} to {high:.4f}",
        verdict(not below and not above),
        {"below": below, "above": above, "ratio": [low, high]},
    )


def broken(draws: gain.Draws, setting: str) -> Claim:
    """Find where the lower bound fails once an assumption is broken."""
    under, over, _ = against_bounds(draws)
    first = float(draws.squared_widths[under].min(initial=math.inf))
    last = float(draws.squared_widths[~under].max(initial=0))
    lower = f"lower fails in {under.mean():.1%}, from u^2 = {first:.3f} on, holds up to {last:.3f}"
    below, above = int(under.sum()), int(over.sum())
    return Claim(
        f"assumption broken: the lower bound fails where u^2 > {gain.WIDEST:.3f}, the upper never",
        setting,
        f"{lower}; upper fails in {above}",
        verdict(last <= gain.WIDEST <= first < math.inf and not above),
        {"below": below, "first_failure": first, "last_success": last, "above": above},
    )


def against_bounds(draws: gain.Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare sqrt(I) with Theorem 1's bounds.

    Returns:
        Masks of draws below and above, bool [n], and sqrt(I) over the upper bound, [n].
    """
    root, (low, high) = np.sqrt(draws.gains), gain.ucb_bounds(draws.squared_widths, draws.outputs)
    slack = 1e-12 * high  # rounding
    return root < low - slack, root > high + slack, root / high


def theorem2(quick: bool, seed: int, tell: Tell) -> Section:
    """Measure Theorem 2: in a tabular MDP, sqrt(I) -> sqrt(|S|/2) / sqrt(N + lambda)."""
    counts, states = [0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000], 6
    claims: list[Claim] = []
    data: dict[str, Any] = {"counts": counts}
    for done, lam in enumerate((1.0, 0.1, 10.0)):
        visits = gain.tabular_visits(counts, states, lam=lam, seed=seed)
        ratio = visits.bonus / visits.predicted
        found = {"bonus": visits.bonus, "count_bonus": visits.predicted}
        data[f"lambda {lam:g}"] = {name: values.tolist() for name, values in found.items()}
        x = 1 / (visits.counts + lam)
        exact = np.sqrt(np.log1p(x) / x)
        # For large N the shortfall is 1 / (4 (N + lambda)).
        trend = float((1 - ratio[-1]) * 4 / x[-1])
        most = f"{counts[-1]:,}"
        setting = f"|S| = {states}, lambda = {lam:g}, N from 0 to {most}"
        measured = f"ratio {ratio[0]:.4f} at N = 0, {ratio[5]:.4f} at 10, {ratio[-1]:.6f} at {most}"
        grows = bool((np.diff(ratio) > 0).all() and (1 - 1e-4 < ratio[-1] < 1))
        holds = grows and np.allclose(ratio, exact, rtol=1e-9) and abs(trend - 1) < 0.01
        values = {"ratio": ratio.tolist(), "shortfall_times_4_n_lambda": trend}
        claim = "sqrt(I) -> sqrt(|S|/2) / sqrt(N + lambda)"
        claims.append(Claim(claim, setting, measured, verdict(holds), values))
        tell((done + 1) / 3)
    return claims, data


FULL = ((8, 64, 256), 40_000, 400)
QUICK = ((8, 64), 10_000, 150)
"""Batch sizes, samples of each, and steps of training a critic."""


def infonce(quick: bool, seed: int, tell: Tell) -> Section:
    """Measure Appendix A: I_nce + log N never exceeds the mutual information."""
    dims, correlations = 4, (0.3, 0.6, 0.9, 0.97, 0.99)
    sizes, samples, steps = QUICK if quick else FULL
    rows = []
    for size in sizes:
        for rho in correlations:
            generator = torch.Generator().manual_seed(seed)
            trained = contrast.trained_critic(rho, dims, size, steps, generator)
            for name, critic in (("best", contrast.best_critic(rho)), ("trained", trained)):
                found = contrast.nce_estimate(critic, rho, dims, size, samples // size, generator)
                rows.append({"critic": name, "batch": size, "rho": rho, **found._asdict()})
            tell(len(rows) / 2 / len(sizes) / len(correlations))
    claims = []
    for name in ("best", "trained"):
        own = [row for row in rows if row["critic"] == name]
        over = [row for row in own if row["value"] - 3 * row["error"] > row["mutual_information"]]
        least = min(own, key=lambda row: row["mutual_information"] - row["value"])
        nearest = f"{least['value']:.4f} +- {least['error']:.4f}"
        nearest += f" for I = {least['mutual_information']:.4f}"
        setting = f"{name} critic, Gaussians of {dims} dims, rho 0.3 to 0.99"
        setting += f", N {min(sizes)} to {max(sizes)}"
        measured = f"{len(over)} of {len(own)} above; nearest {nearest}"
        values = {"above": len(over), "of": len(own)}
        claims.append(Claim("I_nce + log N <= I", setting, measured, verdict(not over), values))
    return claims, {"rows": rows}
