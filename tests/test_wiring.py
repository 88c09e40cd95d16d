"""Every setting of a run is seen to matter, or not to."""

import dataclasses

import gymnasium
import numpy as np
import pytest

from ssedb.collect.environments import look_around
from ssedb.config import TrainConfig
from ssedb.trainer import Trainer
from tests.plain_run import UNUSUAL, Snow
from tests.toy import tiny_config


class Dial(gymnasium.Env):
    """One gray, lighter at every step by as much as it is told."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, by: int = 3) -> None:
        self.by = by

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.gray = int(self.np_random.integers(100))
        return np.full((84, 84), self.gray, np.uint8), {}

    def step(self, action):
        self.gray += self.by
        return np.full((84, 84), self.gray, np.uint8), 0.0, self.gray > 200, False, {}


gymnasium.register("Dial-v0", entry_point=f"{__name__}:Dial")


def outcome(toy: bool = True, **settings):
    """All that comes out of two iterations: metrics, weights, frames."""
    config = tiny_config(**{"out": "unused", **UNUSUAL, "obs_norm_steps": 64, **settings})
    trainer = Trainer(config, Snow(config.num_envs) if toy else None)
    if not toy:
        trainer.fit_observations(look_around(config))
    rows = [trainer.iterate() for _ in range(2)]
    trainer.close()
    for row in rows:
        del row["sps"]
    weights = {
        **trainer.policy.state_dict(),
        **{f"bonus.{k}": v for k, v in trainer.bonus.state_dict().items()},
    }
    return (
        rows,
        [value.numpy().tobytes() for value in weights.values()],
        trainer.rollout.frames.numpy().tobytes(),
    )


TOY: dict = {}

ROOMS = dict(
    toy=False,
    env="rooms-small",
    bonus="rnd",
    bonus_options={"feature_dim": 8},
    ppo_epochs=1,
    bonus_epochs=1,
)

DIAL = {**ROOMS, "env": f"{__name__}:Dial-v0"}

ATARI = {**ROOMS, "env": "breakout", "num_envs": 2, "extrinsic_coef": 0.0}

# Every setting with a base in which it shows, and another value for it.
MATTERS = {
    "env": (ROOMS, "rooms-small@1"),
    "env_kwargs": (DIAL, {"by": 7}),
    "noise": (ROOMS, "random-box"),
    "noise_strength": ({**ROOMS, "noise": "random-box"}, 0.5),
    "max_episode_steps": (ROOMS, 5),
    "obs_norm_steps": (ROOMS, 128),
    "noop_max": (ATARI, 0),
    "bonus": ({**TOY, "bonus_options": {}}, "icm"),
    "bonus_options": (TOY, {"tau": 0.5}),
    "preset": (TOY, "rooms"),
    "fidelity": (TOY, "released"),
    "seed": (TOY, 1),
    "num_envs": (TOY, 8),
    "rollout_steps": (TOY, 8),
    "minibatch_envs": (TOY, 3),
    "ppo_epochs": (TOY, 2),
    "bonus_epochs": (TOY, 1),
    "learning_rate": (TOY, 1e-3),
    "adam_eps": (TOY, 1e-4),
    "gamma": (TOY, 0.8),
    "gae_lambda": (TOY, 0.8),
    "clip": (TOY, 0.02),
    "entropy_coef": (TOY, 0.1),
    "intrinsic_coef": (TOY, 0.6),
    "extrinsic_coef": (TOY, 0.4),
    "reward_scale": (TOY, "recent"),
    "bonus_learning_rate": (TOY, 1e-3),
    "mask_boundaries": (TOY, False),
    "policy_channels": (TOY, (4, 4, 8)),
    "policy_width": (TOY, 8),
    "policy_layers": (TOY, ("linear", "relu")),
}

VARIANTS = {
    "random-box": (ROOMS, "wrap"),
    "pixel": (ROOMS, "zeros"),
    "sticky": (ATARI, "frame"),
}

DOES_NOT = {
    "env_workers": 2,
    "threads": 3,
    "steps": 7,
    "out": "elsewhere",
    "engine": "eager",
    "precision": "fp32",
    "deterministic": True,
    "checkpoint_minutes": 1.0,
    "wandb": True,
}


@pytest.fixture(scope="module")
def usual():
    """The outcome without a change, computed once for each base."""
    known: dict = {}

    def find(base):
        if (key := repr(base)) not in known:
            known[key] = outcome(**base)
        return known[key]

    return find


def test_settings_are_all_declared():
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert names == {*MATTERS, *DOES_NOT, "noise_variant", "device"}


@pytest.mark.parametrize("name", MATTERS)
def test_setting_of_the_algorithm_changes_the_result(usual, name):
    base, value = MATTERS[name]
    same = outcome(**{**base, name: value}) == usual(base)
    assert not same, f"{name}={value} comes to the same"


@pytest.mark.parametrize("noise", VARIANTS)
def test_variant_of_a_noise_changes_the_result(usual, noise):
    base, variant = VARIANTS[noise]
    base = {**base, "noise": noise}
    same = outcome(**{**base, "noise_variant": variant}) == usual(base)
    assert not same, f"{noise} with noise_variant={variant} comes to the same"


@pytest.mark.parametrize("name", DOES_NOT)
def test_setting_of_the_run_changes_no_result(usual, name):
    base = DIAL if name == "env_workers" else TOY
    same = outcome(**{**base, name: DOES_NOT[name]}) == usual(base)
    assert same, f"{name}={DOES_NOT[name]} makes a difference"
