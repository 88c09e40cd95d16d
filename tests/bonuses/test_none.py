"""No bonus: a uniformly random agent, from the first step to its evaluation."""

import math

import pytest
import torch

from ssedb.networks import ActorCritic
from ssedb.runs import checkpoint
from ssedb.runs.evaluation import evaluate
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from ssedb.trainer import Trainer
from tests.bonuses.plain import batch, make
from tests.toy import Grid, Sides, tiny_config


def none_config(out, **changes):
    return tiny_config(out, bonus="none", bonus_options={}, **changes)


def test_none_rewards_nothing_and_trains_nothing():
    bonus, data = make("none"), batch()
    assert torch.equal(bonus.reward(*data), torch.zeros(12))
    assert bonus.loss(*data)[0].item() == 0
    assert list(bonus.parameters()) == []


def test_none_policy_stays_uniform_through_training_checkpoint_resume_and_eval(
    tmp_path, monkeypatch
):
    config = none_config(
        tmp_path / "run", env="rooms-small", steps=512, obs_norm_steps=100, max_episode_steps=30
    )
    train(config)
    resume(tmp_path / "run", steps=1024)
    rows = read_metrics(tmp_path / "run")
    assert [row["steps"] for row in rows] == [256, 512, 768, 1024]
    assert all(row["bonus_raw"] == 0 for row in rows)
    state, _ = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert state["policy"]["policy.weight"].abs().max() == 0
    assert state["policy"]["policy.bias"].abs().max() == 0
    seen = []
    forward = ActorCritic.forward
    monkeypatch.setattr(
        ActorCritic, "forward", lambda self, obs: seen.append(forward(self, obs)) or seen[-1]
    )
    evaluate(tmp_path / "run", 1, device="cpu")
    assert len(seen) >= 30
    assert all((logits.softmax(-1) == 0.2).all() for logits, _ in seen)


def test_none_in_training_draws_all_actions_equally_often(tmp_path):
    trainer = Trainer(none_config(tmp_path), Grid(8))
    for _ in range(4):
        trainer.iterate()
        torch.testing.assert_close(trainer.rollout.log_probs, torch.full((32, 8), -math.log(4)))


@pytest.mark.parametrize("bonus", ["none", "db"])
def test_bonus_of_weight_zero_leaves_the_policy_uniform(tmp_path, bonus):
    trainer = Trainer(
        tiny_config(tmp_path, bonus=bonus, bonus_options={}, intrinsic_coef=0.0), Grid(8)
    )
    trainer.iterate()
    assert trainer.policy.policy.weight.abs().max() == 0


def test_none_with_the_games_reward_trains_the_policy(tmp_path):
    config = none_config(tmp_path, extrinsic_coef=1.0, learning_rate=1e-3, gamma=0.5)
    trainer = Trainer(config, Sides(8, episode=20))
    scores = [trainer.iterate()["score_rollout"] for _ in range(25)]
    assert scores[0] < 14
    assert scores[-1] > 18


def test_none_with_more_ppo_epochs_than_bonus_epochs_trains_on_no_empty_batch(tmp_path):
    trainer = Trainer(
        tiny_config(
            tmp_path,
            env="rooms-small",
            bonus="none",
            bonus_options={},
            ppo_epochs=3,
            bonus_epochs=1,
        )
    )
    calls = []
    trainer.policy_step = lambda *args, **kwargs: calls.append("policy") or {}
    trainer.bonus_step = lambda *args, **kwargs: calls.append("bonus") or {}
    trainer.iterate()
    assert calls == ["bonus"] * 2
