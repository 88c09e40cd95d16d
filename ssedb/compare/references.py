"""Scores of random agents and of a human tester on Atari games, to put games on one scale."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LITERATURE_SOURCE = (
    "Wang et al., Dueling Network Architectures (2016), appendix, and of Badia et al., Agent57 "
    "(2020): up to 30 no-ops, episodes of at most 108,000 frames"
)

# (random, human). Video Pinball is left out: the published tables disagree about its random score.
LITERATURE: dict[str, tuple[float, float]] = {
    "alien": (227.8, 7127.7),
    "amidar": (5.8, 1719.5),
    "assault": (222.4, 742.0),
    "asterix": (210.0, 8503.3),
    "asteroids": (719.1, 47388.7),
    "atlantis": (12850.0, 29028.1),
    "bank_heist": (14.2, 753.1),
    "battle_zone": (2360.0, 37187.5),
    "beam_rider": (363.9, 16926.5),
    "berzerk": (123.7, 2630.4),
    "bowling": (23.1, 160.7),
    "boxing": (0.1, 12.1),
    "breakout": (1.7, 30.5),
    "centipede": (2090.9, 12017.0),
    "chopper_command": (811.0, 7387.8),
    "crazy_climber": (10780.5, 35829.4),
    "defender": (2874.5, 18688.9),
    "demon_attack": (152.1, 1971.0),
    "double_dunk": (-18.6, -16.4),
    "enduro": (0.0, 860.5),
    "fishing_derby": (-91.7, -38.7),
    "freeway": (0.0, 29.6),
    "frostbite": (65.2, 4334.7),
    "gopher": (257.6, 2412.5),
    "gravitar": (173.0, 3351.4),
    "hero": (1027.0, 30826.4),
    "ice_hockey": (-11.2, 0.9),
    "jamesbond": (29.0, 302.8),
    "kangaroo": (52.0, 3035.0),
    "krull": (1598.0, 2665.5),
    "kung_fu_master": (258.5, 22736.3),
    "montezuma_revenge": (0.0, 4753.3),
    "ms_pacman": (307.3, 6951.6),
    "name_this_game": (2292.3, 8049.0),
    "phoenix": (761.4, 7242.6),
    "pitfall": (-229.4, 6463.7),
    "pong": (-20.7, 14.6),
    "private_eye": (24.9, 69571.3),
    "qbert": (163.9, 13455.0),
    "riverraid": (1338.5, 17118.0),
    "road_runner": (11.5, 7845.0),
    "robotank": (2.2, 11.9),
    "seaquest": (68.4, 42054.7),
    "skiing": (-17098.1, -4336.9),
    "solaris": (1236.3, 12326.7),
    "space_invaders": (148.0, 1668.7),
    "star_gunner": (664.0, 10250.0),
    "surround": (-10.0, 6.5),
    "tennis": (-23.8, -8.3),
    "time_pilot": (3568.0, 5229.2),
    "tutankham": (11.4, 167.6),
    "up_n_down": (533.4, 11693.2),
    "venture": (0.0, 1187.5),
    "wizard_of_wor": (563.5, 4756.5),
    "yars_revenge": (3092.9, 54576.9),
    "zaxxon": (32.5, 9173.3),
}


@dataclass(frozen=True)
class Measured:
    """Mean score of a uniform random policy, played as agents are trained here."""

    mean: float
    standard_error: float
    episodes: int


def _read(path: Path) -> tuple[str, dict[str, Measured]]:
    """Read the file of benchmarks/random_references.py: how it measured, and each game's score."""
    found = json.loads(path.read_text(encoding="utf-8"))
    games = {
        game: Measured(row["mean"], row["standard_error"], row["episodes"])
        for game, row in sorted(found["games"].items())
    }
    return f"{found['preprocessing']}; ale-py {found['ale_py']}", games


PREPROCESSING, MEASURED = _read(Path(__file__).with_name("random_references.json"))


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
    """Scale a score: 0 is the random agent, 1 lies above it by as much again as its own score.

    Returns None if that is unknown, 0, or within two standard errors of 0.
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
    said.append(f"the human tester's and the literature's scores are those of {LITERATURE_SOURCE}")
    return "; ".join(said)
