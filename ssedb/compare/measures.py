"""Measures and metrics of a run: labels, bounds, and which way is better. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ssedb.compare import references
from ssedb.compare.references import human_normalised, random_normalised


@dataclass(frozen=True)
class Measure:
    """Label, direction and bounds of a number that runs have."""

    label: str
    better: Literal["high", "low", ""] = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    goal: float | None = None
    """The value that counts as solved, for the optimality gap."""


SHARE = (0.0, 1.0)

NORMALISED: dict[str, Callable[[str, float], float | None]] = {
    "human_score": human_normalised,
    "human_score_literature": partial(human_normalised, literature=True),
    "random_score": random_normalised,
}
"""Measures that scale a game's score by reference scores (ssedb.compare.references)."""


MEASURES: dict[str, Measure] = {
    "human_score": Measure("human-normalised score", "high", goal=1.0),
    "human_score_literature": Measure(
        "human-normalised score with the literature's random agent", "high", goal=1.0
    ),
    "random_score": Measure("score above a random agent's, in its own scores", "high"),
    "score": Measure("score, mean of the last 100 episodes", "high"),
    "score_best": Measure("best score of an episode", "high"),
    "states_share": Measure("share of states seen", "high", SHARE, 1.0),
    "rooms_share": Measure("share of rooms seen", "high", SHARE, 1.0),
    "visit_entropy": Measure("entropy of visits (nats)", "high"),
    "area:states_share": Measure("states seen, mean along training", "high", SHARE, 1.0),
    "area:score": Measure("score, mean along training", "high"),
    "bonus_noise_share": Measure("share of noise in the bonus", "low", SHARE),
    "feature_noise_share": Measure("share of noise in the features", "low", SHARE),
    "count_correlation": Measure("correlation with 1/sqrt(N(s,a)+1)", "high", (-1.0, 1.0)),
    "room_accuracy": Measure("room named from the features", "high", SHARE),
    "place_explained": Measure("place explained by the features", "high", SHARE),
    "noise_explained": Measure("noise explained by the features", "low", SHARE),
    "bonus_raw": Measure("bonus, before normalisation"),
    "entropy": Measure("entropy of the policy (nats)"),
    "sps": Measure("steps per second"),
}
"""Measures that the tables know; any other key of metrics.jsonl works too."""

METRICS = {
    "cells_share": "share of cells seen",
    "states_seen": "states seen",
    "last_first_visit": "step of the last first visit",
    "score_rollout": "score, this rollout",
    "bonus": "bonus, normalised",
    "bonus_raw_std": "spread of the bonus",
    "i_upper": "I_upper: nats in z",
    "i_pred": "I_pred: log-likelihood of the next state",
    "i_nce": "I_nce: telling the next state from others",
    "i_nce_chance": "I_nce of blind guessing",
    "rank_z": "effective rank of z",
    "rank_state": "effective rank of the encoded states",
}
"""Labels of other metrics whose key does not say what they are."""

PROBED = (
    "bonus_noise_share",
    "feature_noise_share",
    "count_correlation",
    "room_accuracy",
    "place_explained",
    "noise_explained",
)
OF_NOISE = ("bonus_noise_share", "feature_noise_share", "noise_explained")
"""Measures of the probe that mean nothing where it drew no noise over the frames."""
CLEAN = ("none", "sticky")
"""Noises that leave frames as they are."""
OF_BONUS = ("bonus_noise_share", "count_correlation")
"""Measures of the probe that mean nothing where there is no bonus."""


def measure(key: str) -> Measure:
    """Return the measure of a key; the name of an unlisted one is its key."""
    return MEASURES.get(key) or Measure(METRICS.get(key, key.replace("_", " ")))


def label(key: str) -> str:
    """Return how tables, figures and pages call a measure or a metric."""
    return measure(key).label


def about(key: str, games: Iterable[str]) -> str:
    """Return what the 0 of a normalised score is; empty for other measures."""
    if key not in NORMALISED:
        return ""
    return references.about(games, literature=key.endswith("_literature"))


def bounds(key: str) -> tuple[float, float]:
    """Return the bounds between which a measure must lie."""
    return measure(key).bounds


def is_share(key: str) -> bool:
    """Tell whether a measure lies between 0 and 1, the same for every task."""
    return bounds(key) == (0, 1)
