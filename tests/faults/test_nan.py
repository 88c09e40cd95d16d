"""NaN and Inf stop a run within one update, name where they came from, and are never saved."""

import pytest
import torch

from ssedb.collect.collector import Collector
from ssedb.errors import TrainingError
from ssedb.runs.loop import resume
from ssedb.runs.maps import mean_by_cell
from ssedb.trainer import Trainer
from tests.faults.forks import SMALL, last_state, small_run
from tests.toy import Grid, tiny_config

NAN = float("nan")


def in_observations(trainer, monkeypatch):
    def collect(self, act, collect=Collector.collect):
        rollout = collect(self, act)
        rollout.frames = rollout.frames.float()
        rollout.frames[5, 2, 0, 0] = NAN
        return rollout

    monkeypatch.setattr(Collector, "collect", collect)


def in_scale_of_observations(trainer, monkeypatch):
    trainer.policy.normalize.std.fill_(NAN)


def in_rewards_of_environment(trainer, monkeypatch):
    monkeypatch.setattr(trainer.env, "act", lambda actions: torch.full((8,), float("inf")))


def in_bonus(trainer, monkeypatch):
    bonus = trainer.bonus
    monkeypatch.setattr(bonus, "reward", lambda *a, reward=bonus.reward: reward(*a) * NAN)


def in_bonus_loss(trainer, monkeypatch):
    def loss(*args, loss=trainer.bonus.loss):
        value, metrics = loss(*args)
        return value + NAN, metrics

    monkeypatch.setattr(trainer.bonus, "loss", loss)


def in_bonus_gradient(trainer, monkeypatch):
    def loss(*args, loss=trainer.bonus.loss):
        value, metrics = loss(*args)
        return value + (0 * value).sqrt(), metrics  # finite, with an infinite slope times 0

    monkeypatch.setattr(trainer.bonus, "loss", loss)


def in_policy_loss(trainer, monkeypatch):
    monkeypatch.setattr("ssedb.ppo.normalize_advantages", lambda advantages: advantages * NAN)


def in_policy_gradient(trainer, monkeypatch):
    def loss(*args, loss=trainer.ppo_loss, **settings):
        value, metrics = loss(*args, **settings)
        return value + (0 * value).abs().sqrt(), metrics

    monkeypatch.setattr(trainer, "ppo_loss", loss)


@pytest.mark.parametrize(
    ("inject", "source"),
    [
        (in_observations, "observation is nan"),
        (in_scale_of_observations, "policy_value is nan"),
        (in_rewards_of_environment, "environment_reward is inf"),
        (in_bonus, "bonus_raw is nan"),
        (in_bonus_loss, "bonus_loss is nan"),
        (in_bonus_gradient, "bonus_gradient is nan"),
        (in_policy_loss, "policy_loss is nan"),
        (in_policy_gradient, "policy_gradient is nan"),
    ],
)
def test_nan_is_named_by_its_source_within_the_update(tmp_path, monkeypatch, inject, source):
    trainer = Trainer(tiny_config(tmp_path), Grid(8))
    trainer.iterate()
    inject(trainer, monkeypatch)
    with pytest.raises(TrainingError, match=f"^{source} after update 2$"):
        trainer.iterate()


@pytest.mark.parametrize("name", ["normalize.mean", "encoder.trunk.conv1.bias"])
def test_nan_in_a_buffer_or_a_weight_is_never_saved(tmp_path, monkeypatch, name):
    out = tmp_path / "run"
    small_run(out, steps=32)
    good = last_state(out)
    check = Trainer.require_finite_weights

    def spoil_and_check(self):
        self.bonus.state_dict()[name][0] = NAN  # after the last value that is watched
        check(self)

    monkeypatch.setattr(Trainer, "require_finite_weights", spoil_and_check)
    kind = "buffers" if name == "normalize.mean" else "weights"
    message = rf"the {kind} of the bonus are not finite after update 2 \({name}\)"
    with pytest.raises(TrainingError, match=message):
        resume(out, steps=64)
    assert last_state(out)["steps"] == good["steps"] == 32


def test_guards_are_not_logged(tmp_path):
    trainer = Trainer(tiny_config(tmp_path, **{**SMALL, "env": "rooms-tiny"}))
    row = trainer.iterate()
    trainer.close()
    assert not {"observation", "environment_reward", "policy_value"} & set(row)
    assert not {"policy_gradient", "bonus_gradient"} & set(row)


def test_maps_hold_no_nan():
    class World:
        cells = (0, 1, 2)
        scenes_per_cell = 1

    class Data:
        states = torch.tensor([0, 0, 1])

    rewards = torch.tensor([1.0, 2.0, NAN])
    assert mean_by_cell(rewards, Data, World) == [1.5, None, None]
