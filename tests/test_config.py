"""Names fill in what is not given; mistakes are one line with the value and the remedy."""

import subprocess
import sys

import pytest

from ssedb.config import ConfigError, TrainConfig
from ssedb.options import released_alphas, resolve_options


def test_defaults_are_the_papers():
    config = TrainConfig()
    assert (config.num_envs, config.rollout_steps, config.minibatch_envs) == (128, 128, 16)
    assert (config.ppo_epochs, config.bonus_epochs, config.clip, config.entropy_coef) == (3, 1, 0.1, 0.001)
    assert (config.gamma, config.gae_lambda, config.learning_rate, config.adam_eps) == (0.99, 0.95, 1e-4, 1e-7)
    assert (config.policy_channels, config.policy_width, config.policy_layers) == ((32, 64, 64), 512, ("relu", "relu"))
    assert (config.extrinsic_coef, config.obs_norm_steps, config.max_episode_steps) == (0.0, 10_000, 4500)
    options = config.bonus_options
    assert (options["state_dim"], options["hidden_dim"], options["latent_dim"]) == (512, 256, 128)
    assert (options["tau"], options["alpha2"], options["bonus_root"]) == (0.999, 0.1, "sqrt")


def test_fidelity_switches_all_decisions_and_each_can_be_overridden():
    config = TrainConfig(fidelity="released", adam_eps=1e-5, bonus_options={"bonus_root": "sqrt"})
    assert (config.adam_eps, config.bonus_epochs, config.mask_boundaries) == (1e-5, 3, False)
    assert (config.sticky, config.pixel_noise, config.box_noise) == ("frame", "zeros", "wrap")
    assert config.policy_layers == ("linear", "relu", "relu")
    assert (config.bonus_options["bonus_root"], config.bonus_options["prediction_std"]) == ("sqrt", "scalar")
    small = TrainConfig(preset="small", num_envs=32)
    assert (small.num_envs, small.policy_width, small.bonus_options["state_dim"]) == (32, 256, 256)


@pytest.mark.parametrize(
    ("game", "noise", "alphas"),
    [
        ("alien", "none", (0.001, 0.1)),
        ("breakout", "none", (0.1, 0.1)),
        ("tennis", "none", (0.1, 0.01)),
        ("gopher", "none", (0.001, 0.01)),
        ("alien", "random-box", (0.001, 0.1)),
        ("ms_pacman", "random-box", (0.001, 0.01)),
        ("tennis", "random-box", (0.1, 0.01)),
        ("pong", "random-box", (0.001, 0.01)),
        (None, "none", (0.1, 0.01)),
        ("crazy_climber", "sticky", (0.1, 0.01)),
        ("kangaroo", "sticky", (0.001, 0.01)),
        ("ms_pacman", "sticky", (0.1, 0.1)),
        ("ms_pacman", "pixel", (0.001, 0.01)),
        ("seaquest", "pixel", (0.1, 0.1)),
    ],
)
def test_alphas_by_game_and_noise(game, noise, alphas):
    assert released_alphas(game, noise) == alphas
    options = resolve_options("db", {}, env=game, noise=noise)
    assert (options["alpha1"], options["alpha3"]) == alphas
    assert resolve_options("db", {"alpha1": 0.5}, env=game, noise=noise)["alpha1"] == 0.5


def test_alphas_know_every_spelling():
    assert resolve_options("db", {}, env="ALE/MsPacman-v5")["alpha3"] == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "alein"}, "unknown environment 'alein'; did you mean alien"),
        ({"noise": "fog"}, "noise='fog': use one of none, random-box"),
        ({"bonus": "luck"}, "bonus='luck': use one of"),
        ({"fidelity": "mine"}, "fidelity='mine': use one of paper, released"),
        ({"num_envs": 100}, "num_envs=100 does not split into minibatches of 16 envs; use 96 or 112"),
        ({"num_envs": 8}, "num_envs=8 does not split into minibatches of 16 envs; use 16$"),
        ({"num_envs": -1}, "num_envs=-1: must be above 0"),
        ({"steps": 0}, "steps=0: must be above 0"),
        ({"gamma": 1.5}, "gamma=1.5: must lie between 0 and 1"),
        ({"learning_rate": -1e-4}, "learning_rate=-0.0001: must be above 0"),
        ({"noise_strength": -1}, "noise_strength=-1: must be 0 or more"),
        ({"noise": "sticky", "noise_strength": 5}, "use 4 or less"),
        ({"policy_layers": ("tanh",)}, "policy_layers='tanh': use one of linear, relu"),
        ({"policy_layers": ()}, "must be a list"),
        ({"policy_channels": (1, 2)}, "must be a list of 3"),
        ({"policy_channels": (-1, 8, 8)}, "must be above 0"),
        ({"box_noise": "foo"}, "box_noise='foo': use one of fill, wrap"),
        ({"rollout_steps": 1.5}, "rollout_steps=1.5: must be a whole number"),
        ({"seed": 2**32}, "seed=4294967296: must be below 4294967296"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a finite number"),
        ({"env": 3}, "env=3: must be text"),
        ({"wandb": "yes"}, "wandb='yes': must be true or false"),
        ({"device": "tpu"}, "device='tpu': use auto, cpu"),
        ({"bonus_options": {"prediction_std": "zzz"}}, "prediction_std='zzz': use one of head, scalar, calibrated"),
        ({"bonus_options": {"alpha1": -1}}, "alpha1=-1: must be 0 or more"),
        ({"bonus_options": {"alfa": 1}}, "bonus 'db' has no setting 'alfa'; it has ablation, alpha1"),
    ],
)
def test_mistakes_name_the_value_and_the_remedy(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        TrainConfig(**settings)
    assert "\n" not in str(error.value)


def test_toml_round_trip(tmp_path):
    config = TrainConfig(
        env="MsPacman", fidelity="released", out=tmp_path / 'a "quoted" \\ name', bonus_options={"tau": 0.9}
    )
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert TrainConfig.from_toml(tmp_path / "config.toml") == config


def test_toml_of_another_version_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text('env = "alien"\nflux = 3\n')
    with pytest.raises(ConfigError, match="unknown setting 'flux'"):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ConfigError, match=r"config.toml names no env; put back the file as the run wrote it"):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text('env = "alien"\nsteps = "many"\n')
    with pytest.raises(ConfigError, match=r"config.toml: steps='many': must be a whole number"):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text("env = ")
    with pytest.raises(ConfigError, match="cannot read"):
        TrainConfig.from_toml(tmp_path / "config.toml")


def test_nothing_here_waits_for_torch():
    code = "import sys, ssedb.cli, ssedb.runlog; ssedb.cli.parse_train(['--env', 'alien']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_preset_knows_its_world():
    assert [TrainConfig(preset=name).env for name in ("paper", "small", "rooms")] == ["alien", "alien", "rooms-small"]
    assert TrainConfig(preset="rooms", env="breakout").env == "breakout"


def test_true_is_no_whole_number():
    with pytest.raises(ConfigError, match="ppo_epochs=True: must be a whole number"):
        TrainConfig(ppo_epochs=True)
