"""Claims about the paper's approximations, judged by snapshots of trained DB models."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.analysis.measures import rank_correlation
from ssedb.terminal import plural
from ssedb.theory.claims import Claim, Section, Tell, verdict
from ssedb.theory.networks import Snapshot, train_on_river, train_on_rooms

RIVER = "tabular river with one-hot pictures"
BONUSES = {
    "practical": "the practical bonus ranks transitions as the exact information gain does",
    "marginal": "... with the marginal of what was seen in place of N(0, I)",
    "linear": "... with Theorem 1's gain over DB's representation",
}
"""The bonus as it is, then with each approximation taken back, and what is claimed of it."""
MODELS: dict[str, dict[str, Any]] = {
    "ours": dict(fidelity="ours"),
    "paper": dict(fidelity="paper"),
    "paper, alpha1 0.1": dict(fidelity="paper", alpha1=0.1, alpha3=0.01),
}
"""Settings of the DB model; the first two with the Rooms preset's alpha1 0.001 and alpha3 0.1."""
GOOD = 0.5
"""Threshold of rank correlations and shares above which a claim holds."""


def count_exponent(values: Tensor, counts: Tensor) -> float:
    """Return the slope of log(values) over log(N + 1), each [M]: -1/2 for a count bonus."""
    x, y = (counts + 1.0).double().log(), values.double().clamp_min(1e-12).log()
    return float(np.polyfit(x.numpy(), y.numpy(), 1)[0])


def summary(shot: Snapshot) -> dict[str, Any]:
    """Summarise a snapshot: rank correlations with the exact gain, over all and visited probes."""
    visited = shot.counts > 0
    found: dict[str, Any] = {"steps": shot.steps, "visited": float(visited.double().mean())}
    found |= {"upper": shot.upper, "inside": shot.inside}
    for name in BONUSES:
        values = getattr(shot, name)
        found[name] = rank_correlation(values, shot.exact)
        found[f"{name}_visited"] = rank_correlation(values[visited], shot.exact[visited])
        found[f"{name}_exponent"] = count_exponent(values, shot.counts)
    return found


def calibration(shot: Snapshot) -> list[dict[str, Any]]:
    """Bin probes by their counts; return the exact gain and each bonus, relative to its mean."""
    rows = []
    bins = (shot.counts + 1.0).log2().ceil()  # N = 0, 1, 2 to 3, 4 to 7, ...
    for index in bins.unique():
        here = bins == index
        exact = float(shot.exact[here].mean())
        row: dict[str, Any] = {"counts": float(shot.counts[here].double().mean()), "exact": exact}
        for name in BONUSES:
            values = getattr(shot, name) / getattr(shot, name).mean()
            row[name] = [float(values[here].mean()), float(values[here].std(correction=0))]
        row |= {"exact_over_mean": exact / float(shot.exact.mean()), "of": int(here.sum())}
        rows.append(row)
    return rows


def follow(shots: Iterable[Snapshot], tell: Tell, total: int) -> dict[str, Any]:
    """Collect a run's snapshots: a row each, and calibration and bonus of the last."""
    rows = []
    for i, shot in enumerate(shots):
        rows.append(summary(shot))
        tell((i + 1) / total)
    return {"rows": rows, "calibration": calibration(shot), "practical": shot.practical.tolist()}


def network(quick: bool, seed: int, tell: Tell) -> Section:
    """Train the DB model in two environments with known visit counts, and judge the claims."""
    rollouts, iterations, seeds = (3, 2, 1) if quick else (10, 8, 2)
    river_models = ["ours"] if quick else list(MODELS)
    rooms_models = ["ours"] if quick else ["ours", "paper"]
    plan = [("river", model, i) for model in river_models for i in range(max(2, seeds))]
    plan += [("rooms", model, i) for model in rooms_models for i in range(seeds)]
    runs: dict[str, dict[str, list[Any]]] = {"river": {}, "rooms": {}}
    with torch.random.fork_rng(devices=[]):
        for done, (env, model, i) in enumerate(plan):
            options = MODELS[model]
            if env == "river":
                total, shots = rollouts, train_on_river(rollouts, seed + i, seed, options)
            else:
                total, shots = iterations, train_on_rooms(iterations, seed + i, options)

            def tell_run(share: float, done: int = done) -> None:
                tell((done + share) / len(plan))

            runs[env].setdefault(model, []).append(follow(shots, tell_run, total))
    claims = [*judge(RIVER, runs["river"]), *judge("rooms-small", runs["rooms"])]
    return [*claims, agreement(runs["river"])], {"runs": runs}


def last_half(runs: list[Any], name: str) -> float:
    """Return the mean of a number over the second half of training and over runs."""
    halves = [run["rows"][len(run["rows"]) // 2 :] for run in runs]
    return float(np.mean([row[name] for half in halves for row in half]))


def judge(env: str, models: dict[str, list[Any]]) -> list[Claim]:
    """Judge the claims in one environment: the bonus, then without each approximation."""
    first = next(iter(models.values()))
    steps = first[0]["rows"][-1]["steps"]
    setting = f"{env}, {plural(len(first), 'run')} of {steps:,} steps, second half of training"

    def means(name: str) -> dict[str, float]:
        return {model: last_half(runs, name) for model, runs in models.items()}

    claims = []
    for name, story in BONUSES.items():
        every, visited = means(name), means(f"{name}_visited")
        each = [
            f"{model}: {every[model]:+.2f}, visited only {visited[model]:+.2f}" for model in models
        ]
        good = min(*every.values(), *visited.values()) > GOOD
        text, values = f"rank correlation {'; '.join(each)}", {"all": every, "visited": visited}
        claims.append(Claim(story, setting, text, verdict(good), values))
    slopes = means("practical_exponent")
    text = "; ".join(f"{model}: N^{slope:+.2f}" for model, slope in slopes.items())
    falls = verdict(max(slopes.values()) < -0.25)
    claims.append(Claim("the practical bonus falls like N^-0.5", setting, text, falls, slopes))
    inside, upper = means("inside"), means("upper")
    nats = {model: [inside[model], upper[model]] for model in models}
    text = "; ".join(f"{model}: {i:.1f} of {kl:.1f} nats" for model, (i, kl) in nats.items())
    enough = verdict(all(i > GOOD * kl for i, kl in nats.values()))
    near = "the marginal is near N(0, I): I([S, A]; Z) makes up most of the KL"
    claims.append(Claim(near, setting, text, enough, nats))
    return claims


def agreement(models: dict[str, list[Any]]) -> Claim:
    """Compare the bonuses of two initialisations after the same data."""
    found = {}
    for model, runs in models.items():
        pairs = combinations([torch.tensor(run["practical"]) for run in runs], 2)
        found[model] = float(np.mean([rank_correlation(a, b) for a, b in pairs]))
    text = "; ".join(f"{model}: {value:+.2f}" for model, value in found.items())
    return Claim(
        "a point estimate will do: two initialisations rank alike after the same data",
        f"{RIVER}, at the end",
        f"rank correlation {text}",
        verdict(min(found.values()) > GOOD),
        found,
    )
