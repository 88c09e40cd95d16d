"""Names fill in what is not given; mistakes are one line with the value and the remedy."""

import dataclasses
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import tomli_w

from ssedb.cli.train import parse_train
from ssedb.config import ConfigError, TrainConfig, migrated, under_noise
from ssedb.noises import noise_of


def test_config_by_default_is_the_papers():
    config = TrainConfig()
    assert (config.num_envs, config.rollout_steps, config.minibatch_envs) == (128, 128, 16)
    assert (config.ppo_epochs, config.bonus_epochs, config.clip, config.entropy_coef) == (
        3,
        1,
        0.1,
        0.001,
    )
    assert (config.gamma, config.gae_lambda, config.learning_rate, config.adam_eps) == (
        0.99,
        0.95,
        1e-4,
        1e-7,
    )
    assert (config.policy_channels, config.policy_width, config.policy_layers) == (
        (32, 64, 64),
        512,
        ("relu", "relu"),
    )
    assert (config.extrinsic_coef, config.obs_norm_steps, config.max_episode_steps) == (
        0.0,
        10_000,
        4500,
    )
    assert (config.intrinsic_coef, config.reward_scale, config.noop_max, config.noise_strength) == (
        1.0,
        "run",
        30,
        1.0,
    )
    assert (config.noise, config.bonus, config.steps, config.fidelity, config.preset) == (
        "none", "db", 100_000_000, "paper", "paper",
    )  # fmt: skip
    options = config.bonus_options
    assert (options["state_dim"], options["hidden_dim"], options["latent_dim"]) == (512, 256, 128)
    assert (options["tau"], options["alpha2"], options["bonus_root"]) == (0.999, 0.1, "sqrt")


def test_config_of_a_fidelity_can_be_overridden_by_setting():
    config = TrainConfig(fidelity="released", adam_eps=1e-5, bonus_options={"bonus_root": "sqrt"})
    assert (config.adam_eps, config.bonus_epochs, config.mask_boundaries) == (1e-5, 3, False)
    assert config.policy_layers == ("linear", "relu", "relu")
    assert (config.bonus_options["bonus_root"], config.bonus_options["prediction_std"]) == (
        "sqrt",
        "scalar",
    )
    small = TrainConfig(preset="small", num_envs=32)
    assert (small.num_envs, small.policy_width, small.bonus_options["state_dim"]) == (32, 256, 256)


PAPER = dict(
    bonus="db", entropy_coef=0.001, reward_scale="run", adam_eps=1e-7,
    policy_layers=("relu", "relu"), bonus_epochs=1, mask_boundaries=True, noise_variant="",
    bonus_root="sqrt", nce_input="mean", action_input="first", prediction_std="head",
    target_frames="stack", momentum_every="step", tau=0.999, momentum_target=True,
    ablation="none",
)  # fmt: skip

RELEASED = dict(
    bonus="db", entropy_coef=0.001, reward_scale="run", adam_eps=1e-8,
    policy_layers=("linear", "relu", "relu"), bonus_epochs=3, mask_boundaries=False,
    noise_variant="", bonus_root="none", nce_input="sample", action_input="every",
    prediction_std="scalar", target_frames="stack", momentum_every="epoch", tau=0.999,
    momentum_target=True, ablation="none",
)  # fmt: skip

OURS = dict(
    PAPER, bonus="db-ensemble", entropy_coef=0.01, reward_scale="recent",
    prediction_std="calibrated", target_frames="newest", alpha1=0.001, alpha3=0.1, tau=0.99,
    bonus_epochs=3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fidelity", "expected"), [("paper", PAPER), ("released", RELEASED), ("ours", OURS)]
)
def test_config_of_a_fidelity_is_all_of_these(fidelity, expected):
    config = TrainConfig(env="breakout", fidelity=fidelity)
    settings = {**dataclasses.asdict(config), **config.bonus_options}
    assert {name: settings[name] for name in expected} == expected


SIZES = {
    "paper": dict(
        num_envs=128, rollout_steps=128, minibatch_envs=16, ppo_epochs=3, bonus_epochs=1,
        learning_rate=1e-4, policy_channels=(32, 64, 64), policy_width=512,
        channels=(32, 64, 64), state_dim=512, hidden_dim=256, latent_dim=128,
    ),
    "small": dict(
        num_envs=16, rollout_steps=128, minibatch_envs=4, ppo_epochs=3, bonus_epochs=1,
        learning_rate=3e-4, policy_channels=(16, 32, 32), policy_width=256,
        channels=(16, 32, 32), state_dim=256, hidden_dim=128, latent_dim=64,
    ),
    "rooms": dict(
        num_envs=16, rollout_steps=64, minibatch_envs=4, ppo_epochs=2, bonus_epochs=8,
        learning_rate=1e-3, policy_channels=(8, 16, 16), policy_width=64,
        channels=(8, 16, 16), state_dim=128, hidden_dim=64, latent_dim=32,
        alpha1=0.001, alpha3=0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("preset", SIZES)
def test_config_of_a_preset_is_all_of_these(preset):
    config = TrainConfig(preset=preset)
    settings = {**dataclasses.asdict(config), **config.bonus_options}
    assert {name: settings[name] for name in SIZES[preset]} == SIZES[preset]


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("paper", dict(ppo_epochs=3, bonus_epochs=3, bonus_learning_rate=3e-4)),
        ("small", dict(ppo_epochs=6, bonus_epochs=3, bonus_learning_rate=1e-3)),
        ("rooms", dict(ppo_epochs=2, bonus_epochs=8, bonus_learning_rate=1e-3)),
    ],
)
def test_config_of_our_recipe_changes_passes_and_rate_of_a_preset(preset, expected):
    config = TrainConfig(preset=preset, fidelity="ours")
    assert {name: getattr(config, name) for name in expected} == expected
    given = TrainConfig(preset=preset, fidelity="ours", bonus_epochs=2, bonus="icm")
    assert (given.bonus_epochs, given.bonus) == (2, "icm")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": "alein"}, "unknown environment 'alein'; did you mean alien"),
        ({"noise": "fog"}, "noise='fog': use one of none, clouds"),
        ({"bonus": "luck"}, "bonus='luck': use one of"),
        ({"fidelity": "mine"}, "fidelity='mine': use one of paper, released"),
        (
            {"num_envs": 100},
            "num_envs=100 does not split into minibatches of 16 envs; set num_envs to 96 or 112, "
            "or minibatch_envs to 10 or 20",
        ),
        (
            {"num_envs": 8},
            "num_envs=8 does not split into minibatches of 16 envs; set num_envs to 16, "
            "or minibatch_envs to 8$",
        ),
        ({"num_envs": -1}, "num_envs=-1: must be above 0"),
        ({"steps": 0}, "steps=0: must be above 0"),
        ({"gamma": 1.5}, "gamma=1.5: must be at most 1"),
        ({"learning_rate": -1e-4}, "learning_rate=-0.0001: must be above 0"),
        ({"noise_strength": -1}, "noise_strength=-1: must be 0 or more"),
        ({"noise": "sticky", "noise_strength": 5}, "must be 0 or more and at most 4"),
        ({"policy_layers": ("tanh",)}, r"policy_layers=\('tanh',\): use one of linear, relu$"),
        ({"policy_layers": ()}, "must be a list"),
        ({"policy_channels": (1, 2)}, "must be a list of 3"),
        ({"policy_channels": (-1, 8, 8)}, "must be above 0"),
        (
            {"noise": "random-box", "noise_variant": "foo"},
            "noise_variant='foo': RandomBox has the variants fill, wrap; use one of them$",
        ),
        ({"noise_variant": "fill"}, "noise_variant='fill': NoNoise has no variants; leave it out$"),
        ({"noise_variant": 3}, "noise_variant=3: must be text"),
        ({"rollout_steps": 1.5}, "rollout_steps=1.5: must be a whole number"),
        ({"seed": 2**32}, "seed=4294967296: must be below 4294967296"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: must be a finite number"),
        ({"env": 3}, "env=3: must be text"),
        ({"wandb": "yes"}, "wandb='yes': must be true or false"),
        ({"device": "tpu"}, "device='tpu': use auto, cpu"),
        (
            {"bonus_options": {"prediction_std": "zzz"}},
            "prediction_std='zzz': use one of head, scalar, calibrated",
        ),
        ({"bonus_options": {"alpha1": -1}}, "alpha1=-1: must be 0 or more"),
        (
            {"bonus_options": {"alfa": 1}},
            "bonus 'db' has no setting 'alfa'; it has ablation, alpha1",
        ),
    ],
)
def test_config_with_a_mistake_names_the_value_and_the_remedy(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        TrainConfig(**settings)
    assert "\n" not in str(error.value)


def test_from_toml_of_to_toml_is_the_same_config(tmp_path):
    config = TrainConfig(
        env="MsPacman",
        fidelity="released",
        out=tmp_path / 'a "quoted" \\ name',
        bonus_options={"tau": 0.9},
    )
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert TrainConfig.from_toml(tmp_path / "config.toml") == config


def test_from_toml_of_another_version_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text('env = "alien"\nflux = 3\n')
    with pytest.raises(ConfigError, match="unknown setting 'flux'"):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(
        ConfigError, match=r"config.toml names no env; put back the file as the run wrote it"
    ):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text('env = "alien"\nsteps = "many"\n')
    with pytest.raises(ConfigError, match=r"config.toml: steps='many': must be a whole number"):
        TrainConfig.from_toml(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_text("env = ")
    with pytest.raises(ConfigError, match=r"config.toml cannot be read: .*; put back"):
        TrainConfig.from_toml(tmp_path / "config.toml")


def test_import_of_config_and_flags_does_not_import_torch():
    code = "import sys, ssedb.cli.train as train, ssedb.runs.folder;"
    code += "train.parse_train(['--env', 'alien']);"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_config_of_a_preset_without_env_has_the_presets():
    assert [TrainConfig(preset=name).env for name in ("paper", "small", "rooms")] == [
        "alien",
        "alien",
        "rooms-small",
    ]
    assert TrainConfig(preset="rooms", env="breakout").env == "breakout"


def test_env_kwargs_from_flags_are_kept_in_toml(tmp_path):
    words = [
        "size=8",
        "hard=True",
        "soft=false",
        "mode=fast",
        'name="a b"',
        "goals=[1, 2]",
        "deep={x=0.5}",
    ]
    config, _ = parse_train(["--env", "CartPole-v1", "--env-kwargs", *words])
    wanted = {
        "size": 8,
        "hard": True,
        "soft": False,
        "mode": "fast",
        "name": "a b",
        "goals": [1, 2],
        "deep": {"x": 0.5},
    }
    assert config.env_kwargs == wanted
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert TrainConfig.from_toml(tmp_path / "config.toml") == config
    assert TrainConfig(env="CartPole-v1", env_kwargs={"goals": (1, 2)}).env_kwargs == {
        "goals": [1, 2]
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"env_kwargs": {"render": print}},
            "env_kwargs={'render': <built-in function print>}: may hold text, finite numbers",
        ),
        ({"env_kwargs": {"size": float("inf")}}, "env_kwargs={'size': inf}: may hold text"),
        ({"env_kwargs": {"size": [1, None]}}, "env_kwargs={'size': [1, None]}: may hold text"),
        ({"env_kwargs": 3}, "env_kwargs=3: must be a table"),
        ({"env_kwargs": {"max_episode_steps": 3}}, "max_episode_steps=3 is a setting of its own"),
        ({"env_workers": -1}, "env_workers=-1: must be 0 or more"),
        ({"env_workers": "many"}, "env_workers='many': must be a whole number or use auto"),
        ({"env_workers": 1.5}, "env_workers=1.5: must be a whole number"),
    ],
)
def test_env_kwargs_and_workers_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        TrainConfig(env="CartPole-v1", **settings)


def test_config_with_true_for_a_whole_number_is_refused():
    with pytest.raises(ConfigError, match="ppo_epochs=True: must be a whole number"):
        TrainConfig(ppo_epochs=True)


@pytest.mark.parametrize(("before", "scale"), [("true", "run"), ("false", "none")])
def test_from_toml_of_an_older_run_keeps_its_reward_scale(tmp_path, before, scale):
    text = TrainConfig(env="breakout", fidelity="ours").to_toml()
    (tmp_path / "config.toml").write_text(
        text.replace('reward_scale = "recent"', f"normalize_bonus = {before}")
    )
    assert TrainConfig.from_toml(tmp_path / "config.toml").reward_scale == scale


def test_settings_under_another_noise_have_its_usual_strength_and_variant():
    config = TrainConfig(noise="random-box", noise_strength=9.0, noise_variant="wrap")
    assert under_noise(config, None) == under_noise(config, "random-box") == config
    assert under_noise(config, "sticky") == TrainConfig(noise="sticky")


USUAL = {
    "paper": {"sticky": "step", "pixel": "add", "random-box": "fill"},
    "released": {"sticky": "frame", "pixel": "zeros", "random-box": "wrap"},
}
USUAL["ours"] = USUAL["paper"]


def older(config: TrainConfig, variants: dict[str, str]) -> str:
    """The text of config.toml when each noise with variants had a setting for them."""
    values = tomllib.loads(config.to_toml())
    keys = {"sticky": "sticky", "pixel": "pixel_noise", "random-box": "box_noise"}
    return tomli_w.dumps(values | {keys[noise]: variant for noise, variant in variants.items()})


@pytest.mark.parametrize("given", USUAL["released"])
@pytest.mark.parametrize("noise", [*USUAL["paper"], "clouds"])
@pytest.mark.parametrize("fidelity", USUAL)
def test_from_toml_of_an_older_run_keeps_its_variant(tmp_path, fidelity, noise, given):
    config = TrainConfig(noise=noise, fidelity=fidelity)
    other = USUAL["paper" if fidelity == "released" else "released"]
    variants = {**USUAL[fidelity], given: other[given]}
    (tmp_path / "config.toml").write_text(older(config, variants))
    if noise == given:
        config = dataclasses.replace(config, noise_variant=other[noise])
    assert TrainConfig.from_toml(tmp_path / "config.toml") == config
    assert noise_of(config).variant == variants.get(noise, "")
    # So that an old and a new folder of one run are one run.
    read = tomllib.loads(older(config, variants))
    assert migrated(read) == migrated(tomllib.loads(config.to_toml()))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "config.toml has sticky=3, which"),
        ("slow", "noise_variant='slow': Sticky has"),
    ],
)
def test_from_toml_of_an_older_run_with_a_damaged_variant_is_refused(tmp_path, value, message):
    text = older(TrainConfig(noise="sticky"), USUAL["paper"] | {"sticky": value})
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_toml(tmp_path / "config.toml")


def test_from_toml_of_an_older_run_over_random_features_is_read(tmp_path):
    config = TrainConfig(bonus="random-features")
    (tmp_path / "config.toml").write_text(config.to_toml().replace('features = "random"\n', ""))
    assert TrainConfig.from_toml(tmp_path / "config.toml") == config


def test_bonus_learning_rate_by_default_is_the_policys():
    assert TrainConfig(env="breakout", learning_rate=0.5).bonus_learning_rate == 0.5
    assert (
        TrainConfig(env="breakout", learning_rate=0.5, bonus_learning_rate=0.25).bonus_learning_rate
        == 0.25
    )
    assert parse_train(["--learning-rate", "0.5"])[0].bonus_learning_rate == 0.5
    assert parse_train(["--learning_rate", "0.5"])[0].bonus_learning_rate == 0.5
    assert (
        parse_train(["--learning-rate=0.5", "--bonus-learning-rate", "0.25"])[0].bonus_learning_rate
        == 0.25
    )


def test_to_toml_of_a_numpy_float_is_a_number(tmp_path):
    config = TrainConfig(env="breakout", gamma=np.float64(0.5))
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert TrainConfig.from_toml(tmp_path / "config.toml").gamma == 0.5


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({"seed": np.int64(3)}, {"seed": 3}),
        ({"gamma": np.float32(0.5)}, {"gamma": 0.5}),
        ({"wandb": np.bool_(True)}, {"wandb": True}),
        ({"policy_channels": tuple(np.arange(1, 4))}, {"policy_channels": (1, 2, 3)}),
        ({"bonus_options": {"state_dim": np.int32(8)}}, {"bonus_options": {"state_dim": 8}}),
    ],
)
def test_config_of_numpy_numbers_is_that_of_pythons(settings, plain):
    assert TrainConfig(**settings).to_toml() == TrainConfig(**plain).to_toml()


def test_config_of_numpys_nan_is_refused_as_not_finite():
    with pytest.raises(ConfigError, match=r"gamma=.*nan.*: must be a finite number"):
        TrainConfig(gamma=np.float32("nan"))


def test_flags_with_a_table_twice_are_refused():
    with pytest.raises(ConfigError, match="--env-kwargs is given twice"):
        parse_train(["--env", "CartPole-v1", "--env-kwargs", "a=1", "--env-kwargs", "b=2"])


def test_settings_from_a_file_have_the_limits_of_flags(tmp_path):
    with pytest.raises(ConfigError, match="steps=100000000001: must be at most 100,000,000,000"):
        TrainConfig(steps=10**11 + 1)
    assert TrainConfig(steps=1e11).steps == 10**11
