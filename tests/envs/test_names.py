"""Any common spelling finds its game."""

import pytest

import ssedb
from ssedb.envs.names import GAMES, atari_game, atari_games, canonical_env

SPELLINGS = ["ms_pacman", "MsPacman", "mspacman", "MS-PACMAN", "MsPacman-v4"]
SPELLINGS += ["ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4", "MsPacmanDeterministic-v0"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_env_name_in_any_spelling_is_resolved(name):
    assert canonical_env(name) == "ms_pacman"


def test_suite_is_18_games_that_exist():
    assert len(set(GAMES)) == 18
    assert set(GAMES) < set(atari_games())
    assert ssedb.GAMES is GAMES
    assert atari_game("MontezumaRevenge") == "montezuma_revenge"


def test_gymnasium_ids_are_kept():
    assert canonical_env("CartPole-v1") == "CartPole-v1"
    assert canonical_env("Blackjack-v1") == "Blackjack-v1"  # Gymnasium's own, not the cartridge
    assert canonical_env("blackjack") == "blackjack"


def test_env_name_that_is_unknown_is_refused_with_suggestions():
    with pytest.raises(ssedb.ConfigError, match=r"'alein'; did you mean alien.*list envs"):
        canonical_env("alein")
    with pytest.raises(ssedb.ConfigError, match="'rooms-smal'; did you mean rooms-small"):
        canonical_env("rooms-smal")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CartPole-v99", "did you mean CartPole-v1? `ssedb list envs` shows Atari and Rooms"),
        ("CartPole", "did you mean CartPole-v1? `ssedb list envs` shows Atari and Rooms"),
        ("Carpole-v1", "does a package have to be imported? use module:Id; `ssedb list envs` "),
        ("", "does a package have to be imported? use module:Id; `ssedb list envs` "),
        ("a b-v1", "does a package have to be imported? use module:Id; `ssedb list envs` "),
    ],
)
def test_env_name_that_gymnasium_has_in_another_version_gets_that(name, hint):
    with pytest.raises(ssedb.ConfigError) as refused:
        canonical_env(name)
    assert str(refused.value).startswith(f"unknown environment {name!r}; {hint}")
