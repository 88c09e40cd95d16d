"""The Gymnasium wrapper: rewards of true transitions alone, in `info` or in the reward."""

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ssedb
from ssedb.integrations.gymnasium import VectorIntrinsicReward
from tests.bonuses.recorder import RECORDER, Recorder

from .corridor import CLOCK, DIARY, LENGTH, SPACES, Clock, Corridor, Diary, Sighted, rollout

pytestmark = pytest.mark.usefixtures("short_window")


def wrapped(
    mode: AutoresetMode, truncates: bool = False, bonus: str = CLOCK, **settings
) -> VectorIntrinsicReward:
    env = SyncVectorEnv([partial(Corridor, truncates)] * 2, autoreset_mode=mode)
    settings = {"update_every": 2, "reward_scale": "none", "preset": "rooms", **settings}
    return VectorIntrinsicReward(env, bonus, **settings)


def play(env: VectorIntrinsicReward, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and intrinsic rewards of the first environment."""
    env.reset(seed=0)
    found = [env.step(np.zeros(2, int)) for _ in range(steps)]
    return np.array([f[1][0] for f in found]), np.array(
        [f[4]["intrinsic_reward"][0] for f in found]
    )


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_only_true_transitions_are_rewarded(mode, truncates):
    rewards, intrinsic = play(wrapped(mode, truncates), 9)
    cycle = [1, 2, 3, 4, 5] + [0] * (mode == AutoresetMode.NEXT_STEP)  # a step that only resets
    expected = np.array([0, 0, *(cycle * 2)[2:9]])  # the first update is after two steps
    assert intrinsic.tolist() == expected.tolist()
    assert rewards.tolist() == (np.array((cycle * 2)[:9]) == LENGTH).tolist()
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert torch.equal(later, before + 1)
    trained = torch.cat(Clock.trained).tolist()
    assert LENGTH in trained  # the last observation of an episode
    assert 0 not in trained


def test_steps_that_only_reset_are_left_out_whatever_the_reward_knows_of_the_environments():
    env = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward(CLOCK, SPACES, preset="rooms", reward_scale="none")
    play(VectorIntrinsicReward(env, reward, update_every=2), 9)
    trained = torch.cat(Clock.trained).tolist()
    assert LENGTH in trained
    assert 0 not in trained


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_image_of_dictionary_observations_is_rewarded_with_the_true_last_ones(mode):
    env = SyncVectorEnv([partial(Sighted, says=True)] * 2, autoreset_mode=mode)
    play(VectorIntrinsicReward(env, CLOCK, update_every=2, preset="rooms"), 9)
    before, _, later = map(torch.cat, zip(*Clock.rewarded, strict=True))
    assert torch.equal(later, before + 1)
    assert LENGTH in later


def test_update_every_says_how_often_the_bonus_is_updated():
    env = wrapped(AutoresetMode.SAME_STEP, update_every=3)
    assert play(env, 7)[1].tolist() == [0, 0, 0, 4, 5, 1, 2]
    assert env.reward.updates == 2


def test_metrics_tell_the_raw_and_the_scaled_bonus_since_the_last_update():
    env = wrapped(AutoresetMode.SAME_STEP, update_every=3, reward_scale="run")
    intrinsic = play(env, 6)[1]
    assert env.reward.metrics["bonus_raw"] == pytest.approx((4 + 5 + 1) / 3)
    assert env.reward.metrics["bonus"] == pytest.approx(intrinsic[3:].mean())


def test_first_steps_are_observed_and_trained_on_as_a_rollout():
    env = wrapped(AutoresetMode.SAME_STEP, bonus=RECORDER, update_every=3, epochs=1)
    Recorder.calls.clear()
    play(env, 3)
    assert Recorder.calls[:3] == ["reward 6 6", "observe 6 6", "loss 6"]


def test_compute_of_a_wrappers_reward_without_sync_leaves_its_next_rewards_as_they_were():
    envs = [wrapped(AutoresetMode.SAME_STEP, bonus="icm", device="cpu") for _ in range(2)]
    before = [play(env, 4)[1] for env in envs]
    envs[0].reward.compute(rollout(), sync=False)
    after = [play(env, 4)[1] for env in envs]
    assert np.array_equal(*before)
    assert np.array_equal(*after)
    assert after[0].any()


def test_add_to_reward_weighs_both():
    env = wrapped(AutoresetMode.SAME_STEP, add_to="reward", intrinsic_coef=2, extrinsic_coef=0.5)
    rewards, intrinsic = play(env, 6)
    assert rewards.tolist() == (2 * intrinsic + [0, 0, 0, 0, 0.5, 0]).tolist()
    assert env.reward.updates == 3


def test_reset_mask_begins_new_episodes_of_those_environments():
    env = SyncVectorEnv([Corridor] * 2)
    env = VectorIntrinsicReward(env, DIARY, update_every=1, preset="rooms")
    env.reset(seed=0)
    for _ in range(LENGTH):
        env.step(np.zeros(2, int))
    env.reset(options={"reset_mask": np.array([True, False])})
    info = env.step(np.zeros(2, int))[4]
    assert (info["intrinsic_reward"] > 0).tolist() == [True, False]  # the other only resets
    assert Diary.episodes[-1].tolist() == [4]


def test_reset_mask_within_an_episode_leaves_the_episodes_of_the_others():
    env = SyncVectorEnv([Corridor] * 2)
    env = VectorIntrinsicReward(env, DIARY, update_every=1, preset="rooms")
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(2, int))
    env.reset(options={"reset_mask": np.array([True, False])})
    env.step(np.zeros(2, int))
    assert Diary.episodes[-1].tolist() == [2, 1]


def test_single_environments_and_steps_before_a_reset_are_answered_in_one_line():
    with pytest.raises(ssedb.ConfigError, match="give vector environments"):
        VectorIntrinsicReward(Corridor(), "rnd")
    env = wrapped(AutoresetMode.SAME_STEP)
    env.env.reset()
    with pytest.raises(ssedb.ConfigError, match="before any reset"):
        env.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("mode", "settings", "message"),
    [
        (AutoresetMode.SAME_STEP, {"add_to": "both"}, "add_to='both'"),
        (AutoresetMode.SAME_STEP, {"update_every": 0}, "update_every=0"),
        (AutoresetMode.DISABLED, {}, "autoreset_mode=.*SAME_STEP or NEXT_STEP"),
    ],
)
def test_settings_that_do_not_fit_are_answered_in_one_line(mode, settings, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        wrapped(mode, **settings)
