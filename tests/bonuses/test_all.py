"""What every bonus must do in a real training run."""

import copy

import pytest
import torch

import ssedb
from ssedb.runs import checkpoint
from ssedb.runs.loop import resume, train
from ssedb.trainer import Trainer
from tests.bonuses.recorder import RECORDER, Recorder
from tests.helpers import logged_numbers
from tests.toy import Grid, tiny_config


def config(out, bonus, **changes):
    return tiny_config(
        out, preset="rooms", bonus=bonus, bonus_options={}, bonus_epochs=1, **changes
    )


def equal(first, second) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_trainer_with_any_bonus_resumes_bit_for_bit(tmp_path, bonus):
    whole = Trainer(config(tmp_path, bonus, env="breakout"), Grid(8, seed=1, episode=9))
    whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    expected = whole.iterate()
    again = Trainer(config(tmp_path, bonus, env="breakout", seed=5), Grid(8, seed=77, episode=9))
    again.load_state_dict(state)
    actual = again.iterate()
    assert {**actual, "sps": 0} == {**expected, "sps": 0}
    assert equal(whole.bonus.state_dict(), again.bonus.state_dict())
    assert equal(whole.policy.state_dict(), again.policy.state_dict())


@pytest.mark.parametrize("bonus", ["none", "count", "re3"])
def test_bonus_without_trained_parameters_trains_saves_and_resumes(tmp_path, bonus):
    settings = dict(env="rooms-small", obs_norm_steps=100, checkpoint_minutes=0)
    train(config(tmp_path / "whole", bonus, steps=768, **settings))
    train(config(tmp_path / "parts", bonus, steps=256, **settings))
    resume(tmp_path / "parts", steps=768)
    rows = [logged_numbers(tmp_path / name) for name in ("whole", "parts")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 3
    assert all(row["bonus_loss"] == 0 for row in rows[0])


def test_bonus_methods_are_called_in_the_documented_order(tmp_path):
    settings = dict(bonus=RECORDER, bonus_options={}, bonus_epochs=2)
    trainer = Trainer(tiny_config(tmp_path, **settings), Grid(8))
    for _ in range(2):
        Recorder.calls.clear()
        trainer.iterate()
        epoch = ["loss 128", "after_step"] * 2 + ["after_epoch"]
        assert Recorder.calls == ["reward 128 128"] * 2 + ["observe 128 128"] * 2 + epoch * 2 + [
            "after_rollout"
        ]


def test_episode_numbers_after_a_resume_with_fresh_episodes_are_new(tmp_path):
    class Unrestorable(Grid):
        restorable = False

    trainer = Trainer(config(tmp_path, "db-ngu", env="breakout"), Unrestorable(8, episode=9))
    trainer.iterate()
    used = set(trainer.rollout.episodes.flatten().tolist()) | set(trainer.bonus.owners.tolist())
    again = Trainer(config(tmp_path, "db-ngu", env="breakout"), Unrestorable(8, seed=3, episode=9))
    again.load_state_dict(copy.deepcopy(trainer.state_dict()))
    assert not used & set(again.rollout.episodes[0].tolist())
    again.iterate()
    new = again.rollout.episodes
    assert not used & set(new.flatten().tolist())
    assert all(
        len(set((new[:, n] % 8).tolist())) == 1 for n in range(8)
    )  # an env's numbers are its own


def test_episode_numbers_of_atari_after_a_resume_are_new(tmp_path):
    options = {"channels": (4, 4, 4), "state_dim": 16, "hidden_dim": 16, "latent_dim": 8}
    sizes = dict(env="breakout", num_envs=2, minibatch_envs=2, steps=64, obs_norm_steps=20)
    sizes |= dict(noise="sticky", noise_variant="frame")  # the emulator's own cannot be restored
    train(tiny_config(tmp_path / "run", bonus="db-ngu", bonus_options=options, **sizes))
    resume(tmp_path / "run", steps=128)
    state, _ = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    numbers = state["rollout"]["episodes"]
    assert (numbers >= 2).all()
    assert torch.equal(numbers % 2, torch.arange(2))
