"""The command of a run as the page shows it."""

import shlex
import tomllib

import pytest

from ssedb.cli.train import parse_train
from ssedb.config import TrainConfig
from ssedb.report.command import full_command, train_command
from tests.toy import tiny_config


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(
            env="rooms", bonus="rnd", preset="rooms", steps=10, seed=3, out="runs/it's a name"
        ),
        TrainConfig(
            fidelity="released", noise="pixel", bonus_options={"alpha1": 0.5}, reward_scale="none"
        ),
        tiny_config("runs/x", policy_layers=("relu", "linear", "relu")),
        TrainConfig(
            env="CartPole-v1",
            env_kwargs={"size": 8, "mode": "a b", "goals": [1], "hard": True, "deep": {"x": 0.5}},
        ),
        TrainConfig(learning_rate=1e-3, bonus_learning_rate=1e-2),
    ],
)
def test_command_on_the_page_leads_to_the_same_configuration(config):
    words = shlex.split(train_command(config))
    assert words[:2] == ["ssedb", "train"]
    assert parse_train(words[2:]) == (config, None)


@pytest.mark.parametrize("variant", ["", "wrap"])
def test_command_made_without_imports_leads_to_the_same_configuration(variant):
    config = TrainConfig(noise="random-box", noise_variant=variant)
    words = shlex.split(full_command(tomllib.loads(config.to_toml())))
    assert words[:2] == ["ssedb", "train"]
    assert ("--noise-variant" in words) == bool(variant)
    assert parse_train(words[2:]) == (config, None)
