"""Scores of random agents and of a human tester on Atari games, to put games on one scale."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """Mean score of a uniform random policy, played as agents are trained here."""

    mean: float
    standard_error: float
    episodes: int
    mean_length: float | None = None


def _read(name: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


_literature = _read("literature_references.json")
LITERATURE = {game: (random, human) for game, (random, human) in _literature["games"].items()}
"""Scores of a random agent and of a human tester."""
_measured = _read("random_references.json")  # written by benchmarks/random_references.py
MEASURED = {game: Measured(**row) for game, row in sorted(_measured["games"].items())}
PREPROCESSING = f"{_measured['preprocessing']}; ale-py {_measured['ale_py']}"


def random_score(game: str) -> float | None:
    """Return a uniform random agent's mean score, measured here or in the literature; else None."""
    if game in MEASURED:
        return MEASURED[game].mean
    return LITERATURE[game][0] if game in LITERATURE else None


def human_normalised(game: str, score: float, *, literature: bool = False) -> float | None:
    """Scale a score: 0 is the random agent (`random_score`, or the literature's), 1 the human."""
    if game not in LITERATURE:
        return None
    random, human = LITERATURE[game]
    if game in MEASURED and not literature:
        random = MEASURED[game].mean
    return (score - random) / (human - random)


def random_normalised(game: str, score: float) -> float | None:
    """Scale a score: 0 is the random agent, 1 is one random-agent score above the random agent.

    Returns None if the random agent's score is unknown, 0, or within two standard errors of 0.
    """
    random = random_score(game)
    doubt = 2 * MEASURED[game].standard_error if game in MEASURED else 0.0
    if random is None or abs(random) <= doubt:
        return None
    return (score - random) / abs(random)


def random_source(games: Iterable[str]) -> str:
    """Say briefly where the random agent's scores of these games come from."""
    others = sorted({game for game in games if game not in MEASURED})
    return f"the literature's for {', '.join(others)}" if others else "measured here"


def about(games: Iterable[str], *, literature: bool = False) -> str:
    """Say what 0 and 1 of these games' normalised scores are, and where they come from."""
    known = sorted({game for game in games if random_score(game) is not None})
    measured = [] if literature else [game for game in known if game in MEASURED]
    others = [game for game in known if game not in measured]
    said = []
    if measured:
        episodes = sorted({MEASURED[game].episodes for game in measured})
        count = f"{episodes[0]:,}" if len(episodes) == 1 else f"{episodes[0]:,} to {episodes[-1]:,}"
        said.append(
            f"0 is a uniform random agent, measured over {count} episodes of each game "
            f"without noise (benchmarks/random_references.py; {PREPROCESSING})"
        )
    if others:
        said.append(f"0 is the literature's random agent for {', '.join(others)}")
    source = _literature["source"]
    said.append(f"the human tester's and the literature's scores are those of {source}")
    return "; ".join(said)
