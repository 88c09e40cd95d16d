"""Options of every bonus by preset, fidelity, game and noise: second copies of the tables."""

import pytest

from ssedb.config import TrainConfig
from ssedb.noises import list_noises
from ssedb.options import released_alphas, resolve_options

# (alpha1, alpha3) as released, by game and noise; pong stands for a game the release does not list.
ALPHAS = """
game             none        random-box  sticky      pixel
alien            0.001/0.1   0.001/0.1   0.001/0.1   0.001/0.1
asteroids        0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
bank_heist       0.001/0.1   0.001/0.1   0.001/0.1   0.001/0.1
beam_rider       0.001/0.01  0.001/0.01  0.001/0.01  0.001/0.01
boxing           0.1/0.1     0.1/0.1     0.1/0.1     0.1/0.1
breakout         0.1/0.1     0.1/0.1     0.1/0.1     0.1/0.1
centipede        0.1/0.1     0.1/0.1     0.1/0.1     0.1/0.1
chopper_command  0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
crazy_climber    0.1/0.1     0.001/0.01  0.1/0.01    0.001/0.01
gopher           0.001/0.01  0.001/0.01  0.001/0.01  0.001/0.01
gravitar         0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
kangaroo         0.1/0.1     0.001/0.01  0.001/0.01  0.001/0.01
kung_fu_master   0.1/0.01    0.001/0.01  0.001/0.01  0.001/0.01
ms_pacman        0.1/0.1     0.001/0.01  0.1/0.1     0.001/0.01
seaquest         0.1/0.1     0.001/0.01  0.1/0.1     0.1/0.1
solaris          0.1/0.1     0.1/0.1     0.1/0.1     0.1/0.1
tennis           0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
time_pilot       0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
up_n_down        0.1/0.01    0.001/0.01  0.1/0.01    0.1/0.01
video_pinball    0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
wizard_of_wor    0.1/0.1     0.1/0.1     0.1/0.1     0.1/0.1
zaxxon           0.1/0.01    0.1/0.01    0.1/0.01    0.1/0.01
pong             0.1/0.01    0.001/0.01  0.1/0.01    0.1/0.01
"""


def test_alphas_of_every_game_and_noise_are_the_released_ones():
    (_, *noises), *rows = (line.split() for line in ALPHAS.strip().splitlines())
    assert len(rows) == 22 + 1
    for game, *pairs in rows:
        of_noise = {
            noise: tuple(map(float, pair.split("/")))
            for noise, pair in zip(noises, pairs, strict=True)
        }
        for noise in list_noises():  # the noises that the release does not have count as none
            alphas = of_noise.get(noise, of_noise["none"])
            options = resolve_options("db", {}, env=game, noise=noise)
            assert (options["alpha1"], options["alpha2"], options["alpha3"]) == (
                alphas[0],
                0.1,
                alphas[1],
            ), (game, noise)
    assert released_alphas(None, "none") == (0.1, 0.01)
    assert released_alphas(None, "random-box") == (0.001, 0.01)
    assert resolve_options("db", {"alpha1": 0.5}, env="alien")["alpha1"] == 0.5


@pytest.mark.parametrize("noise", ["none", "random-box"])
def test_options_of_our_recipe_are_the_same_under_every_noise(noise):
    options = TrainConfig(env="kangaroo", fidelity="ours", noise=noise).bonus_options
    assert (options["alpha1"], options["alpha3"], options["tau"]) == (0.001, 0.1, 0.99)
    plain = TrainConfig(env="kangaroo", bonus="db-ensemble", noise=noise).bonus_options
    assert (plain["alpha1"], plain["tau"]) == (0.001 if noise == "random-box" else 0.1, 0.999)


PICTURES = {"paper": (32, 64, 64), "small": (16, 32, 32), "rooms": (8, 16, 16)}

OPTIONS = {
    "icm": dict(feature_dim={"paper": 512, "small": 256, "rooms": 64}, features="inverse"),
    "rnd": dict(feature_dim={"paper": 512, "small": 256, "rooms": 64}),
    "random-features": dict(
        feature_dim={"paper": 512, "small": 256, "rooms": 64}, features="random"
    ),
    "disagreement": dict(
        feature_dim={"paper": 512, "small": 256, "rooms": 64}, models=10, loss_dropout=0.2
    ),
    "e3b": dict(feature_dim=64, ridge=0.1, slots=1024),
    "lbs": dict(feature_dim={"paper": 512, "small": 256, "rooms": 64}, beta=0.01),
    "lpm": dict(feature_dim={"paper": 512, "small": 256, "rooms": 64}),
    "cb": dict(code_dim={"paper": 64, "small": 64, "rooms": 32}, beta=1e-3),
    "re3": dict(feature_dim=64, neighbours=3, distance="kth"),
    "db-ucb": dict(ridge=1.0),
    "db-bebold": dict(ridge=1.0, regulation=0.5),
    "db-ensemble": dict(
        models=5, model_dim=256, model_input="z", reward_by="online", memory=20_000
    ),
    "db-ngu": dict(ridge=1.0, neighbours=10, lifelong_cap=5.0, memory=65536),
    "db-count": dict(memory=4096, neighbours=10),
}


@pytest.mark.parametrize("preset", PICTURES)
@pytest.mark.parametrize("bonus", OPTIONS)
def test_options_of_a_bonus_are_all_of_these(bonus, preset):
    expected = {k: v[preset] if isinstance(v, dict) else v for k, v in OPTIONS[bonus].items()}
    expected["channels"] = PICTURES[preset]
    found = resolve_options(bonus, {}, preset=preset)
    own = {
        name: value
        for name, value in found.items()
        if name == "channels" or name not in resolve_options("db", {})
    }
    assert own == expected


def test_options_of_count_are_coarse_frames_in_a_table_of_four_million():
    assert resolve_options("count", {}) == dict(counted="frames", grid=12, levels=8, table_bits=22)


def test_alphas_of_another_spelling_are_the_games():
    assert resolve_options("db", {}, env="ALE/MsPacman-v5")["alpha3"] == 0.1
