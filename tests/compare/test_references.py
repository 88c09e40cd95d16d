"""Reference scores against a second source, and what the normalised scores make of them."""

from pathlib import Path

import pytest

from ssedb import GAMES
from ssedb.compare import references
from ssedb.compare.references import (
    LITERATURE,
    MEASURED,
    about,
    human_normalised,
    random_normalised,
    random_score,
)
from ssedb.compare.tables import number
from ssedb.envs.names import atari_games

DQN_ZOO = """
alien 227.8 7127.7 | amidar 5.8 1719.5 | assault 222.4 742.0 | asterix 210.0 8503.3
asteroids 719.1 47388.7 | atlantis 12850.0 29028.1 | bank_heist 14.2 753.1
battle_zone 2360.0 37187.5 | beam_rider 363.9 16926.5 | berzerk 123.7 2630.4 | bowling 23.1 160.7
boxing 0.1 12.1 | breakout 1.7 30.5 | centipede 2090.9 12017.0 | chopper_command 811.0 7387.8
crazy_climber 10780.5 35829.4 | defender 2874.5 18688.9 | demon_attack 152.1 1971.0
double_dunk -18.6 -16.4 | enduro 0.0 860.5 | fishing_derby -91.7 -38.7 | freeway 0.0 29.6
frostbite 65.2 4334.7 | gopher 257.6 2412.5 | gravitar 173.0 3351.4 | hero 1027.0 30826.4
ice_hockey -11.2 0.9 | jamesbond 29.0 302.8 | kangaroo 52.0 3035.0 | krull 1598.0 2665.5
kung_fu_master 258.5 22736.3 | montezuma_revenge 0.0 4753.3 | ms_pacman 307.3 6951.6
name_this_game 2292.3 8049.0 | phoenix 761.4 7242.6 | pitfall -229.4 6463.7 | pong -20.7 14.6
private_eye 24.9 69571.3 | qbert 163.9 13455.0 | riverraid 1338.5 17118.0 | road_runner 11.5 7845.0
robotank 2.2 11.9 | seaquest 68.4 42054.7 | skiing -17098.1 -4336.9 | solaris 1236.3 12326.7
space_invaders 148.0 1668.7 | star_gunner 664.0 10250.0 | surround -10.0 6.5 | tennis -23.8 -8.3
time_pilot 3568.0 5229.2 | tutankham 11.4 167.6 | up_n_down 533.4 11693.2 | venture 0.0 1187.5
wizard_of_wor 563.5 4756.5 | yars_revenge 3092.9 54576.9 | zaxxon 32.5 9173.3
"""
"""Random and human scores as DeepMind's DQN Zoo publishes them (Atari-57 without Video Pinball)."""


def test_references_of_the_literature_match_a_second_source():
    entries = (entry.split() for line in DQN_ZOO.strip().splitlines() for entry in line.split("|"))
    assert {game: (float(random), float(human)) for game, random, human in entries} == LITERATURE
    assert len(LITERATURE) == 56
    assert set(LITERATURE) <= set(atari_games())


def test_references_measured_cover_every_game_of_the_suite():
    others = {
        "montezuma_revenge",
        "space_invaders",
        "freeway",
        "pong",
        "beam_rider",
        "chopper_command",
        "video_pinball",
    }
    assert {*GAMES, *others, "zaxxon"} <= set(MEASURED)
    for game, measured in MEASURED.items():
        assert measured.episodes >= 100, game
        assert measured.standard_error > 0 or measured.mean == 0, game


def test_references_measured_are_near_the_literature():
    """Both are random agents; a wrong game or a clipped score would be far off."""
    for game in MEASURED.keys() & LITERATURE.keys():
        random, human = LITERATURE[game]
        assert abs(MEASURED[game].mean - random) < 0.25 * (human - random), game


@pytest.fixture
def two_games(monkeypatch):
    """Breakout was measured, Pong was not."""
    monkeypatch.setattr(references, "MEASURED", {"breakout": references.Measured(1.3, 0.1, 400)})


def test_normalised_zero_is_our_random_agent_where_there_is_one(two_games):
    assert human_normalised("breakout", 1.3) == 0
    assert human_normalised("breakout", 30.5) == 1
    assert human_normalised("breakout", 1.7, literature=True) == 0
    assert human_normalised("breakout", 30.5, literature=True) == 1
    assert human_normalised("pong", -20.7) == 0  # the literature's, for want of ours
    assert random_score("breakout") == 1.3
    assert random_score("pong") == -20.7
    assert human_normalised("rooms", 3) is None
    assert random_score("rooms") is None


def test_scores_in_units_of_the_random_agent_are_computed(two_games, monkeypatch):
    assert random_normalised("breakout", 1.3) == 0
    assert random_normalised("breakout", 2.6) == pytest.approx(1)
    assert random_normalised("tennis", 0) == pytest.approx(1)  # from -23.8
    assert random_normalised("freeway", 10) is None
    assert random_normalised("rooms", 10) is None
    monkeypatch.setitem(references.MEASURED, "boxing", references.Measured(0.5, 0.3, 400))
    assert random_normalised("boxing", 10) is None  # not told from 0


def test_references_name_their_source(two_games):
    ours, theirs = about(["breakout"]), about(["pong"])
    assert ours.startswith(
        "0 is a uniform random agent, measured over 400 episodes of each game without noise"
    )
    assert "literature's random agent" not in ours
    assert theirs.startswith("0 is the literature's random agent for pong;")
    both = about(["pong", "breakout", "rooms"])
    assert "measured over 400 episodes" in both
    assert "0 is the literature's random agent for pong;" in both
    assert about(["breakout"], literature=True).startswith(
        "0 is the literature's random agent for breakout;"
    )
    for said in (ours, theirs, both):
        assert "Wang et al." in said


def test_references_page_lists_every_score():
    page = (Path(__file__).parents[2] / "docs" / "references.md").read_text()
    for game, measured in MEASURED.items():
        literature = [number(score) for score in LITERATURE.get(game, (None, None))]
        cells = [game, f"{number(measured.mean)} ± {number(measured.standard_error)}", *literature]
        assert f"| {' | '.join(cells)} |" in page
    assert {f"{measured.episodes} episodes" for measured in MEASURED.values()} == {"100 episodes"}
    assert "100 episodes of each game" in page
