"""Samples of a rollout: which transitions count, and what is refused."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.integrations.samples import Samples, as_array, as_data
from ssedb.integrations.scale import WINDOW
from ssedb.integrations.stepwise import Stepwise

from .corridor import CLOCK, DIARY, LENGTH, Clock, rollout, small


def test_pairs_across_an_end_are_neither_rewarded_nor_trained_on():
    samples = rollout()
    obs = samples["observations"]
    samples["next_observations"][:-1] = obs[1:]  # what a buffer of observations alone can tell
    reward = small(CLOCK, reward_scale="none", epochs=1)
    rewards = reward.compute(samples)
    false = samples["terminateds"].copy()
    false[-1] = False
    assert false.sum() == 3
    assert (rewards.numpy()[false] == 0).all()
    assert 0 not in torch.cat(Clock.trained)
    assert len(torch.cat(Clock.trained)) == 24 - 3


def test_true_last_observations_are_rewarded_and_trained_on():
    reward = small(CLOCK, reward_scale="none", epochs=1)
    rewards = reward.compute(rollout()).numpy()
    assert (rewards[rollout()["terminateds"]] == LENGTH).all()
    assert torch.cat(Clock.trained).tolist().count(LENGTH) == 4


def test_invalid_steps_are_neither_rewarded_nor_trained_on():
    samples = rollout()
    samples["valid"] = np.arange(8)[:, None] >= np.array([0, 3, 8])
    rewards = small(CLOCK, reward_scale="none", epochs=1).compute(samples).numpy()
    assert ((rewards > 0) == samples["valid"]).all()
    assert len(torch.cat(Clock.trained)) == 8 + 5


def constant() -> dict[str, np.ndarray]:
    """Episodes of one step that all look alike."""
    samples = rollout()
    ends = np.ones((8, 3), bool)
    samples["observations"][:] = samples["next_observations"][:] = 7
    return {**samples, "terminateds": ends}


@pytest.mark.parametrize("watched", [True, False])
def test_valid_says_that_ends_like_the_next_beginnings_are_true(watched):
    for valid, count in ({}, 3), ({"valid": np.ones((8, 3), bool)}, 24):
        reward = small(CLOCK, epochs=1)
        Clock.trained.clear()
        samples = {**constant(), **valid}
        for t in range(8 * watched):
            reward.watch(**{name: value[t] for name, value in samples.items()})
        reward.compute(None if watched else samples)
        assert len(torch.cat(Clock.trained)) == count


def test_steps_are_rewarded_though_ends_are_like_the_next_beginnings():
    step = Stepwise(small(CLOCK, epochs=1), update_every=WINDOW)
    row = {name: value[0] for name, value in constant().items()}
    for _ in range(WINDOW):
        step(row["observations"], row["actions"], row["terminateds"], row["next_observations"])
    assert len(torch.cat(Clock.trained)) == 3 * WINDOW


def without(key: str) -> dict[str, np.ndarray]:
    return {name: value for name, value in rollout().items() if name != key}


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (without("actions"), "samples without 'actions'"),
        ({**rollout(), "terminateds": np.zeros(3)}, r"terminateds of shape \[3\]"),
        ({**rollout(), "observations": np.zeros((8, 3, 9, 9, 1))}, "observations of shape"),
        ({**rollout(), "actions": np.zeros((8, 3, 2))}, "actions of shape"),
        ({**rollout(), "actions": rollout()["actions"].T}, r"actions of shape \[3, 8\]"),
        ({**rollout(), "actions": rollout()["actions"] + 5}, r"action \d: Discrete\(3\) has no"),
        ({**rollout(), "observations": rollout(9)["observations"]}, "observations of shape"),
        (
            {**rollout(), "next_observations": rollout(envs=2)["observations"]},
            "next_obs.* of shape",
        ),
        ({**rollout(), "truncateds": np.zeros(3)}, "truncateds of shape"),
        ({**rollout(), "valid": np.ones((8, 1))}, "valid of shape"),
        ({**rollout(), "masks": np.ones((8, 3))}, "samples with 'masks'"),
        ({name: value[:0] for name, value in rollout().items()}, r"terminateds of shape \[0, 3\]"),
        (rollout(envs=2), "samples of 2 environments, after 3"),
    ],
)
def test_samples_that_do_not_fit_are_answered_in_one_line(samples, message):
    reward = small(DIARY)
    reward.compute(rollout())
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        reward.compute(samples)
    assert "\n" not in str(error.value)


def test_share_is_what_a_pass_trains_on():
    small(CLOCK, epochs=1, share=0.25).update(rollout())
    assert len(torch.cat(Clock.trained)) == 6


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x[::-1][::-1],
        lambda x: np.flip(np.flip(x, -1).copy(), -1),
        lambda x: x.astype(">f4"),
        np.asfortranarray,
    ],
)
def test_arrays_are_taken_however_they_lie_in_memory(given):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert as_data("observations", given(x)).tolist() == x.tolist()
    assert as_data("dones", np.bool_(True)).shape == ()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_array_of_what_environments_gave_is_a_copy(kind):
    given = kind([1.0, 2.0])
    copy = as_array(given)
    given[:] = 0
    assert isinstance(copy, np.ndarray)
    assert copy.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("resets_only", [True, False])
def test_last_step_of_an_episode_stays_where_the_next_one_only_resets(resets_only):
    places = torch.tensor([4.0, 5.0, 0.0])[:, None, None]  # 5 is the last of the first episode
    samples = Samples(
        obs=places,
        actions=torch.zeros(3, 1, dtype=torch.int64),
        next_obs=torch.tensor([5.0, 0.0, 1.0])[:, None, None],
        dones=torch.tensor([[True], [False], [False]]),
        valid=torch.tensor([[True], [not resets_only], [True]]),
    )
    # Where step 1 acts, 5 is the first observation of its episode, so step 0 has no last one.
    assert samples.valid[:, 0].tolist() == [resets_only, not resets_only, True]
