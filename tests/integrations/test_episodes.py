"""Episodes of other environments: numbers that last, and steps that only reset."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ssedb
from ssedb.integrations.episodes import EpisodeNumbers, ResetSteps
from ssedb.integrations.samples import Samples

from .corridor import CLOCK, DIARY, LENGTH, Clock, Corridor, Diary, rollout, small

CPU = torch.device("cpu")


def ends(*dones: list[int]) -> Samples:
    """A rollout of which only the episode ends matter."""
    done = torch.tensor(dones).bool()
    nothing = torch.zeros(*done.shape, 1)
    return Samples(nothing, nothing, nothing, done, torch.ones_like(done))


def test_episode_numbers_rise_by_the_number_of_environments():
    numbers = EpisodeNumbers(CPU, fixed=True)
    assert numbers.first(2).tolist() == [0, 1]
    numbers.advance(ends([0, 1], [0, 1], [1, 0]))
    assert numbers.first(2).tolist() == [2, 5]


def test_episode_numbers_after_a_reset_are_unused():
    numbers = EpisodeNumbers(CPU, fixed=True)
    numbers.begin(None)  # before any step nothing changes
    assert numbers.first(2).tolist() == [0, 1]
    numbers.advance(ends([0, 1]))
    numbers.begin(torch.tensor([True, False]))
    assert numbers.first(2).tolist() == [2, 3]
    numbers.begin(None)
    assert numbers.first(3).tolist() == [4, 5, 6]


@pytest.mark.parametrize("fixed", [True, False])
def test_episode_numbers_of_other_environments_are_unused_or_refused(fixed):
    numbers = EpisodeNumbers(CPU, fixed=fixed)
    numbers.advance(ends([0, 1]))
    if fixed:
        with pytest.raises(ssedb.ConfigError, match=r"samples of 3 .*, after 2; .*begin"):
            numbers.first(3)
    else:
        assert numbers.first(3).tolist() == [4, 5, 6]


def test_steps_after_an_end_only_reset_unless_environments_were_reset_by_hand():
    steps = ResetSteps(CPU, next_step=True)
    dones = torch.tensor([[0, 1], [0, 0], [1, 1]]).bool()
    assert steps.acting_steps(dones).tolist() == [[True, True], [True, False], [True, True]]
    steps.advance(dones)
    assert steps.acting_steps(dones)[0].tolist() == [False, False]
    steps.begin(torch.tensor([True, False]))
    assert steps.acting_steps(dones)[0].tolist() == [True, False]
    assert steps.acting_steps(dones[:, :1])[0].tolist() == [True]  # other environments begin
    steps.begin(None)
    assert steps.acting_steps(dones)[0].tolist() == [True, True]


def test_every_step_acts_where_environments_reset_in_the_same_step():
    steps = ResetSteps(CPU, next_step=False)
    steps.advance(torch.ones(1, 2).bool())
    assert steps.acting_steps(torch.ones(2, 2).bool()).all()


def test_episode_numbers_saved_and_loaded_continue():
    one, other = EpisodeNumbers(CPU, fixed=True), EpisodeNumbers(CPU, fixed=True)
    one.advance(ends([0, 1], [0, 1]))
    other.load_state_dict(one.state_dict())
    assert other.first(2).tolist() == [0, 5]
    one.begin(None)
    other.load_state_dict(one.state_dict())
    assert other.first(1).tolist() == [6]


def test_reset_steps_saved_and_loaded_continue():
    one, other = ResetSteps(CPU, next_step=True), ResetSteps(CPU, next_step=True)
    dones = torch.tensor([[False, True]])
    one.advance(dones)
    other.load_state_dict(one.state_dict())
    assert other.acting_steps(dones)[0].tolist() == [True, False]


@pytest.mark.parametrize("own", [None, True, False])
def test_reset_steps_loaded_follow_the_saved_ones_unless_the_environments_tell(own):
    saved, loaded = ResetSteps(CPU, next_step=True), ResetSteps(CPU, next_step=own)
    dones = torch.tensor([[True], [False]])
    assert loaded.acting_steps(dones)[1].item() == (own is not True)
    loaded.load_state_dict(saved.state_dict())
    assert loaded.acting_steps(dones)[1].item() == (own is False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copied_reward_knows_the_steps_that_only_reset(copied):
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward(CLOCK, envs, preset="rooms", reward_scale="none", device="cpu")
    samples = {name: value[:, :2] for name, value in rollout(8).items()}
    found = copied(reward).compute(samples)
    assert torch.equal(found, reward.compute(samples))
    after_the_end = torch.tensor(samples["terminateds"][:-1])
    assert (found[1:][after_the_end] == 0).all()


def test_episodes_keep_their_numbers_from_rollout_to_rollout():
    reward = small(DIARY)
    samples = rollout(8)
    for part in (slice(0, 6), slice(6, 8)):
        reward.compute({name: value[part] for name, value in samples.items()})
    first, second = (e.view(-1, 3) if len(e) % 3 == 0 else e for e in Diary.episodes)
    numbers = torch.cat([first, second])
    expected = np.arange(3) + 3 * ((np.arange(8)[:, None] + np.arange(3)) // LENGTH)
    assert numbers.tolist() == expected.tolist()


def test_episodes_of_environments_that_were_reset_have_new_numbers():
    reward = small(DIARY)
    reward.compute(rollout(2))
    reward.begin_episodes()
    reward.compute(rollout(2))
    first, second = (set(episodes.tolist()) for episodes in Diary.episodes)
    assert not first & second


def test_reset_among_watched_steps_begins_new_episodes_of_those_environments():
    reward = small(DIARY)
    step = {name: value[0] for name, value in rollout(1).items()}
    for which in (None, [True, False, True], None, [False, False, False]):
        reward.watch(**step)
        reward.begin_episodes(which)
    reward.watch(**step)
    reward.compute()
    expected = [[0, 1, 2], [3, 4, 5], [6, 4, 8], [9, 7, 11], [9, 7, 11]]
    assert torch.cat(Diary.episodes).view(5, 3).tolist() == expected
    reward.begin_episodes([False, True, False])
    reward.compute(rollout(1))
    assert Diary.episodes[-1].tolist() == [9, 10, 11]


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("which", [[True], [True] * 4, True])
def test_reset_of_another_number_of_environments_is_answered_in_one_line(which, watched):
    reward = small(DIARY)
    reward.compute(rollout(1))
    if watched:
        reward.watch(**{name: value[0] for name, value in rollout(1).items()})
    with pytest.raises(ssedb.ConfigError, match=r"which of shape .*each of the 3 envi"):
        reward.begin_episodes(which)


def test_episodes_that_end_in_forgotten_steps_are_over():
    reward = small(DIARY)
    reward.compute(rollout(1))
    for step in range(1, 4):  # environments 1 and 2 end, 0 does not
        reward.watch(**{name: value[step] for name, value in rollout(4).items()})
    reward.forget_watched()
    reward.compute(rollout(1))
    assert Diary.episodes[-1].tolist() == [0, 4, 5]


def test_step_after_a_reset_counts_though_the_episode_had_ended():
    """Gymnasium's default again: `reset` takes the place of the step that would reset."""
    envs = SyncVectorEnv([Corridor] * 2)
    reward = ssedb.IntrinsicReward(CLOCK, envs, preset="rooms", reward_scale="none")
    last = {name: value[4, :2] for name, value in rollout(5).items()}
    last["terminateds"] = np.ones(2, bool)
    first = {name: value[0, :2] for name, value in rollout(1).items()}
    reward.watch(**last)
    reward.begin_episodes([True, False])
    reward.watch(**first)
    assert (reward.compute()[1] > 0).tolist() == [True, False]


@pytest.mark.parametrize(("watched", "given"), [(True, False), (False, True), (True, True)])
def test_steps_that_only_reset_are_known_from_the_environments(watched, given):
    """Gymnasium's default: the step after an end resets, whatever the action."""
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward(
        CLOCK, envs, preset="rooms", reward_scale="none", epochs=1, device="cpu"
    )
    obs, _ = envs.reset(seed=0)
    found = []
    for steps in (5, 4, 6):  # rollouts: the first ends with an episode, the others within one
        rows = []
        for _ in range(steps):
            next_obs, rewards, ended, cut, _ = envs.step(np.zeros(2, int))
            rows.append((obs, np.zeros(2, int), rewards, ended, cut, next_obs))
            obs = next_obs.copy()
        if watched:
            for row in rows:
                reward.watch(*row)
        columns = map(np.stack, zip(*rows, strict=True))
        samples = dict(zip(rollout(), columns, strict=True)) if given else None
        found += reward.compute(samples)[:, 0].tolist()
    assert found == ([1, 2, 3, 4, 5, 0] * 3)[:15]
    trained = torch.cat(Clock.trained).tolist()
    assert trained.count(LENGTH) == 2 * 2
    assert 0 not in trained


def test_watched_steps_that_only_reset_are_known_when_each_is_rewarded():
    """As off-policy agents of RLeXplore do: watch a step, and compute the same one."""
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward(CLOCK, envs, preset="rooms", reward_scale="none", device="cpu")
    obs, _ = envs.reset(seed=0)
    found = []
    for _ in range(12):
        actions = np.zeros(2, int)
        next_obs, rewards, ended, cut, _ = envs.step(actions)
        step = dict(zip(rollout(), (obs, actions, rewards, ended, cut, next_obs), strict=True))
        reward.watch(**step)
        one = {name: value[None] for name, value in step.items()}
        found += reward.compute(one, sync=False)[:, 0].tolist()
        obs = next_obs.copy()
    assert found == [1, 2, 3, 4, 5, 0] * 2


def test_reward_of_another_number_of_environments_that_begin_continues():
    envs = SyncVectorEnv([Corridor] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    reward = ssedb.IntrinsicReward("rnd", envs, preset="rooms", batch_size=8)
    reward.compute(rollout(envs=3))
    assert reward.compute(rollout(envs=2)).shape == (8, 2)


@pytest.mark.parametrize("bonus", ["e3b", "rnd"])
def test_loaded_reward_continues_with_another_number_of_environments_after_a_reset(bonus):
    envs = SyncVectorEnv([Corridor] * 2)
    reward = ssedb.IntrinsicReward(bonus, envs, preset="rooms", batch_size=8)
    before = small(bonus)
    before.compute(rollout(envs=3))
    reward.load_state_dict(before.state_dict())
    reward.begin_episodes()
    assert reward.compute(rollout(envs=2)).shape == (8, 2)
