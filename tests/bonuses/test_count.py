"""Counts: by hand, and exact on Rooms."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.bonuses.base import Context
from ssedb.trainer import Trainer
from tests.bonuses.plain import ACTIONS, SHAPE, batch, make
from tests.toy import tiny_config


def states(*ids):
    return Context(torch.zeros(len(ids), dtype=torch.int64), torch.tensor(ids))


def test_count_reward_is_one_over_the_root_of_the_earlier_visits_plus_one():
    bonus = make("count", counted="states")
    obs = torch.zeros(6, *SHAPE, dtype=torch.uint8)
    actions = torch.tensor([0, 0, 1, 0, 3, 0])
    context = states(5, 5, 5, 6, 5, 5)

    def rewarded():
        return bonus.reward(obs, actions, obs, context).tolist()

    assert rewarded() == [1.0] * 6  # a rollout is rewarded before it counts
    bonus.observe(obs, actions, obs, context)
    assert rewarded() == pytest.approx([4**-0.5, 4**-0.5, 2**-0.5, 2**-0.5, 2**-0.5, 4**-0.5])
    bonus.observe(obs[:1], actions[:1], obs[:1], states(5))
    assert rewarded() == pytest.approx([5**-0.5, 5**-0.5, 2**-0.5, 2**-0.5, 2**-0.5, 5**-0.5])


def test_count_of_frames_uses_the_newest_coarse_picture_and_the_action():
    bonus = make("count", grid=2, levels=4)
    picture = torch.zeros(1, *SHAPE, dtype=torch.uint8)
    picture[:, -1, :18, :18] = 200

    def visits(obs, action=1):
        reward = bonus.reward(obs, torch.tensor([action]), obs)
        return round(reward.item() ** -2) - 1

    for _ in range(3):
        bonus.observe(picture, torch.tensor([1]), picture)
    assert visits(picture) == 3
    assert visits(picture, action=2) == 0
    for place, value, expected in (
        ((0, 0), 0, 3),
        ((-1, 0), 0, 3),
        ((-1, 0), 255, 3),
        ((-1, 35), 255, 3),
    ):
        other = picture.clone()
        other[0, place[0], place[1], 0] = value  # an older frame, or one pixel of the coarse field
        assert visits(other) == expected
    brighter, moved = picture.clone(), picture.flip(-1)
    brighter[:, -1, :18, :18] = 120  # another of the four levels
    assert visits(brighter) == visits(moved) == 0


def test_count_of_frames_has_a_grid_of_twelve_and_eight_even_gray_levels():
    gray = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(-1, *SHAPE)
    levels = make("count").levels(gray)
    assert torch.equal(levels, (torch.arange(256) // 32)[:, None].expand(-1, 144))


def test_count_of_many_pictures_hardly_collides():
    bonus = make("count", table_bits=16)
    obs = torch.randint(
        256, (300, *SHAPE), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    obs[:, -1] = (
        obs[:, -1, ::3, ::3].repeat_interleave(3, 1).repeat_interleave(3, 2)
    )  # so that coarse fields differ
    actions = torch.arange(300) % ACTIONS
    bonus.observe(obs, actions, obs)
    assert (bonus.visits > 0).sum() >= 297
    assert bonus.visits.sum() == 300


def test_count_on_rooms_matches_the_visit_counts(tmp_path):
    trainer = Trainer(
        tiny_config(
            tmp_path, env="rooms-small", bonus="count", bonus_options={}, max_episode_steps=25
        )
    )
    assert trainer.bonus.options.counted == "states"
    exact = trainer.env.env.visit_counts
    reward, calls = trainer.bonus.reward, []
    trainer.bonus.reward = lambda *x: calls.append((x, reward(*x))) or calls[-1][1]
    for _ in range(3):
        before = exact.pair_visits.clone()
        calls.clear()
        trainer.iterate()
        for (_, actions, _, context), rewards in calls:
            expected = 1 / np.sqrt(before[context.states, actions].numpy() + 1)
            np.testing.assert_allclose(rewards, expected, rtol=1e-6)
        counted = trainer.bonus.visits[: exact.pair_visits.numel()].view_as(exact.pair_visits)
        assert torch.equal(counted.long(), exact.pair_visits)
        assert trainer.bonus.visits.sum() == exact.pair_visits.sum()
    assert exact.pair_visits.sum() == 3 * 256


def test_count_outside_of_rooms_uses_frames_and_refuses_states(tmp_path):
    assert make("count").options.counted == "frames"
    assert ssedb.TrainConfig(env="alien", bonus="count").bonus_options["counted"] == "frames"
    assert ssedb.TrainConfig(env="rooms@3", bonus="count").bonus_options["counted"] == "states"
    with pytest.raises(
        ssedb.ConfigError, match="counted=states: this environment does not tell its true states"
    ):
        make("count", counted="states").reward(*batch())
    with pytest.raises(
        ssedb.ConfigError, match="breakout does not tell its true states, which count needs"
    ):
        Trainer(
            tiny_config(
                tmp_path,
                env="breakout",
                num_envs=1,
                minibatch_envs=1,
                bonus="count",
                bonus_options={"counted": "states"},
            )
        )
    with pytest.raises(ssedb.ConfigError, match="feature_dim=0: must be above 0"):
        ssedb.TrainConfig(bonus="rnd", bonus_options={"feature_dim": 0})
