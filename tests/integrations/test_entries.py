"""Dictionary observations: the bonus sees what an agent of our trainer would."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ssedb
from ssedb.envs.seen import Seen
from ssedb.integrations.entries import Entries

from .corridor import SPACES, VECTORS, random_samples

NUMBERS = spaces.Dict(
    a=VECTORS,
    b=spaces.Discrete(3, start=1),
    c=spaces.MultiDiscrete([2, 3]),
    d=spaces.MultiBinary(2),
    e=spaces.Box(0, 9, (2, 2, 2), np.uint8),
    words=spaces.Text(4),
)
BOTH = spaces.Dict(image=SPACES[0], place=VECTORS)


def samples_of(space: spaces.Dict) -> dict:
    """Samples [4, 3, ...] whose observations are dictionaries of arrays."""
    samples = random_samples(space, SPACES[1])
    for name in ("observations", "next_observations"):
        rows = samples[name]
        samples[name] = {
            key: np.array([[one[key] for one in row] for row in rows]) for key in space
        }
    return samples


def only(samples: dict, key: str) -> dict:
    """The same samples, of which an entry is the observation."""
    names = ("observations", "next_observations")
    return {**samples, **{name: samples[name][key] for name in names}}


def reward_of(space: spaces.Space, **settings) -> ssedb.IntrinsicReward:
    return ssedb.IntrinsicReward(
        "db", (space, SPACES[1]), preset="rooms", batch_size=8, device="cpu", **settings
    )


@pytest.mark.parametrize(("obs_key", "seen"), [(None, "image"), ("place", "place")])
def test_entry_that_is_seen_is_rewarded_as_if_it_were_the_observation(obs_key, seen):
    samples = samples_of(BOTH)
    one, other = reward_of(BOTH, obs_key=obs_key), reward_of(BOTH[seen])
    for _ in range(2):
        assert torch.equal(one.compute(samples), other.compute(only(samples, seen)))
    assert one.compute(only(samples, seen)).shape == (4, 3)  # as TorchRL hands them over


def test_numbers_are_joined_as_our_trainer_joins_them():
    class Numbers(gymnasium.Env):
        observation_space, action_space = NUMBERS, SPACES[1]

    NUMBERS.seed(0)
    entries, seen = Entries(NUMBERS, None), Seen(Numbers())
    assert entries.space.shape == seen.shape
    for _ in range(3):
        observation = NUMBERS.sample()
        assert entries(observation, ()).tolist() == seen.observation(observation, "step").tolist()


@pytest.mark.parametrize(
    ("name", "given"),
    [("b", lambda x: x[..., None]), ("b", lambda x: np.eye(3)[x - 1])],
    ids=["column", "one-hot"],
)
def test_choices_of_a_dictionary_may_have_another_form(name, given):
    """Stable-Baselines3 stores a number as a column, and TorchRL one-hot."""
    samples, one, other = samples_of(NUMBERS), reward_of(NUMBERS), reward_of(NUMBERS)
    changed = dict(samples)
    for key in ("observations", "next_observations"):
        changed[key] = {**samples[key], name: given(samples[key][name])}
    assert torch.equal(one.compute(changed), other.compute(samples))


def test_watch_of_dictionaries_equals_samples():
    samples, one, other = samples_of(NUMBERS), reward_of(NUMBERS), reward_of(NUMBERS)
    for t in range(4):
        step = {
            name: {k: v[t] for k, v in x.items()} if isinstance(x, dict) else x[t]
            for name, x in samples.items()
        }
        one.watch(**step, rewards=None)
    assert torch.equal(one.compute(), other.compute(samples))


def test_state_of_other_entries_is_refused():
    pair = spaces.Dict(a=VECTORS, b=VECTORS)
    state = reward_of(pair, obs_key="a").state_dict()
    with pytest.raises(ssedb.ConfigError, match=r"entries=\['a'\] .* entries=\['b'\]"):
        reward_of(pair, obs_key="b").load_state_dict(state)


@pytest.mark.parametrize(
    ("space", "obs_key", "message"),
    [
        (spaces.Dict(a=SPACES[0], b=SPACES[0]), None, r"several images \(a, b\); use obs_key=a"),
        (BOTH, "c", "obs_key='c': use one of image, place"),
        (spaces.Dict(a=spaces.Text(3)), None, "without an image or a number"),
        (spaces.Dict(a=VECTORS, b=spaces.Box(-np.inf, 1, (40, 40, 3))), None, "images or vectors"),
    ],
)
def test_dictionary_that_does_not_fit_is_answered_in_one_line(space, obs_key, message):
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        reward_of(space, obs_key=obs_key)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "message"), [(BOTH, "without 'image'"), (VECTORS, "with place: .*no such entries")]
)
def test_observations_without_the_entries_are_answered_in_one_line(space, message):
    samples = samples_of(spaces.Dict(place=VECTORS))
    with pytest.raises(ssedb.ConfigError, match=f"observations {message}"):
        reward_of(space).compute(samples)
