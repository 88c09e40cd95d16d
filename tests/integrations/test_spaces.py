"""Spaces of Gymnasium: images, vectors and actions of every kind."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ssedb
from ssedb.integrations.spaces import Actions, Images, make_observations

from .corridor import ACTIONS, CLOCK, SPACES, VECTORS, Clock, Corridor, random_samples, rollout


def test_environments_tell_their_spaces():
    env = SyncVectorEnv([Corridor, Corridor])
    assert ssedb.IntrinsicReward("rnd", env, preset="rooms").inputs.spaces == SPACES
    assert ssedb.IntrinsicReward("rnd", Corridor(), preset="rooms").inputs.spaces == SPACES


@pytest.mark.parametrize(
    ("shape", "rgb", "expected"),
    [
        ((84, 84), None, (1, 84, 84)),
        ((40, 50, 1), None, (1, 40, 50)),
        ((84, 84, 4), None, (4, 84, 84)),
        ((4, 84, 84), None, (4, 84, 84)),
        ((60, 60, 3), None, (1, 60, 60)),
        ((60, 60, 3), False, (3, 60, 60)),
        ((12, 60, 60), None, (4, 60, 60)),
        ((4, 60, 60, 3), None, (4, 60, 60)),  # of FrameStackObservation
        ((2, 1, 40, 50), None, (2, 40, 50)),
        ((7, 7, 3), None, (147,)),  # codes of a grid
        ((33, 33, 3), None, (1, 84, 84)),
        ((210, 160, 3), None, (1, 84, 84)),
    ],
)
def test_images_become_stacks_of_gray_frames(shape, rgb, expected):
    observations = make_observations(spaces.Box(0, 255, shape, np.uint8), rgb)
    assert observations.shape == expected
    white = torch.full((2, 3, *shape), 255.0)
    assert observations(white, (2, 3)).shape == (2, 3, *expected)
    assert (observations(white, (2, 3)) == 255).all()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (0, 255)])
def test_images_of_floats_become_bytes(low, high):
    observations = make_observations(spaces.Box(low, high, (4, 40, 40), np.float32))
    middle = low + 0.25 * (high - low)
    image = torch.tensor([low, middle, high, high]).float()[:, None, None].expand(1, 4, 40, 40)
    found = observations(image, (1,))[0, :, 0, 0]
    assert found.dtype == torch.uint8
    assert found.tolist() == pytest.approx([0, 64, 255, 255], abs=1)


@pytest.mark.parametrize("kind", [bool, np.int16, np.uint16, np.uint32, np.uint64])
def test_images_of_other_numbers_become_bytes(kind):
    high = 1 if kind is bool else 255
    observations = make_observations(spaces.Box(0, high, (4, 40, 40), kind))
    image = np.zeros((1, 4, 40, 40), kind)
    image[:, 1:] = high
    found = observations(torch.as_tensor(image), (1,))[0, :, 0, 0]
    assert found.tolist() == [0, 255, 255, 255]


def test_colours_become_gray_frame_by_frame():
    image = torch.zeros(1, 40, 40, 6, dtype=torch.uint8)
    image[..., 1], image[..., 5] = 100, 100  # green in the first frame, blue in the second
    gray = make_observations(spaces.Box(0, 255, (40, 40, 6), np.uint8))(image, (1,))
    assert gray[0, :, 0, 0].tolist() == [58, 11]


def test_actions_of_a_space_that_starts_elsewhere_count_from_0():
    space = SPACES[0], spaces.Discrete(3, start=5)
    samples = rollout()
    expected = samples["actions"].copy()
    samples["actions"] = samples["actions"][..., None].astype(np.float32) + 5
    ssedb.IntrinsicReward(CLOCK, space, preset="rooms").compute(samples)
    given = torch.cat([actions for _, actions, _ in Clock.rewarded])
    assert given.tolist() == expected.flatten().tolist()


def test_stacks_of_colours_keep_the_order_of_frames():
    space = spaces.Box(0, 255, (2, 40, 40, 3), np.uint8)
    image = torch.zeros(1, *space.shape, dtype=torch.uint8)
    image[:, 0, ..., 1], image[:, 1, ..., 2] = 100, 100
    assert make_observations(space)(image, (1,))[0, :, 0, 0].tolist() == [58, 11]
    with pytest.raises(ssedb.ConfigError, match=r"the space has \[2, 40, 40, 3\]"):
        make_observations(space)(image[:, :1], (1,))


OBSERVATIONS = {
    "vectors": (VECTORS, (5,)),
    "stacks of vectors": (spaces.Box(-2, 2, (2, 5), np.float64), (10,)),
    "bytes": (spaces.Box(0, 9, (5,), np.uint8), (5,)),
    "numbers": (spaces.Discrete(4, start=2), (4,)),
    "several numbers": (spaces.MultiDiscrete([[3, 2]], start=[[1, 0]]), (5,)),
    "bits": (spaces.MultiBinary(6), (6,)),
    "planes of bits": (spaces.Box(0, 1, (10, 10, 4), bool), (400,)),
    "planes of numbers": (spaces.Box(-np.inf, np.inf, (2, 5, 5), np.float32), (50,)),
}


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_vectors_of_every_kind_are_rewarded(kind):
    space, shape = OBSERVATIONS[kind]
    reward = ssedb.IntrinsicReward("db", (space, ACTIONS["one choice"]), preset="rooms")
    for _ in range(2):
        rewards = reward.compute(random_samples(space, ACTIONS["one choice"]))
        assert rewards.shape == (4, 3)
        assert rewards.std() > 0
    assert reward.bonus.normalize.mean.shape == (1, *shape)


@pytest.mark.parametrize("bonus", ["db", "icm", "e3b"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_of_every_kind_are_rewarded(kind, bonus):
    space = ACTIONS[kind]
    reward = ssedb.IntrinsicReward(bonus, (VECTORS, space), preset="rooms")
    samples = random_samples(VECTORS, space)
    rewards = [reward.compute(samples) for _ in range(2)]
    assert rewards[0].shape == (4, 3)
    assert not torch.equal(*rewards)


def test_choices_of_a_space_that_starts_elsewhere_count_from_0():
    space = spaces.MultiDiscrete([3, 2], start=[1, 0])
    Clock.rewarded.clear()
    samples = rollout()
    samples["actions"] = np.stack([samples["actions"] + 1, samples["actions"] % 2], -1)
    ssedb.IntrinsicReward(CLOCK, (SPACES[0], space), preset="rooms").compute(samples)
    given = torch.cat([actions for _, actions, _ in Clock.rewarded])
    assert given.amin(0).tolist() == [0, 0]
    assert given.amax(0).tolist() == [2, 1]


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=4), spaces.MultiDiscrete([3, 2])])
def test_choices_given_one_hot_equal_those_given_as_numbers(space):
    """TorchRL hands over one-hot choices, Stable-Baselines3's buffer a dimension of 1."""
    space.seed(0)
    drawn = [space.sample() for _ in range(3)]
    numbers = torch.as_tensor(np.array(drawn)).view(3, -1)
    flat = torch.as_tensor(np.array([spaces.flatten(space, one) for one in drawn]))
    observations, actions = make_observations(space), Actions(space)
    assert observations(numbers, (3,)).tolist() == flat.tolist()
    assert observations(flat, (3,)).tolist() == flat.tolist()
    assert actions(flat, (3,)).tolist() == actions(numbers, (3,)).tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_choices_of_any_whole_numbers_count_from_0(kind):
    for space in (spaces.Discrete(4, start=1), spaces.MultiDiscrete([3, 4], dtype=kind)):
        shape, first = space.shape, int(np.min(getattr(space, "start", 0)))
        numbers = torch.as_tensor(np.full((2, *shape), first + 2, kind))
        assert (Actions(space)(numbers, (2,)) == 2).all()
        assert make_observations(space)(numbers, (2,)).sum(1).tolist() == [max(1, *shape, 1)] * 2
    if kind is not np.int8:
        assert Actions(spaces.Discrete(4, dtype=kind))(torch.tensor([3]), (1,)).tolist() == [3]


def test_one_hot_choices_of_a_relaxed_policy_are_rounded():
    hot = torch.tensor([[0.0, 0.99999994, 1e-8], [1.0, 0.0, 0.0]])
    assert Actions(spaces.Discrete(3))(hot, (2,)).tolist() == [1, 0]


@pytest.mark.parametrize(
    "row", [[0.2, 0.7, 0.1], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, np.nan]]
)
def test_choices_that_are_not_one_hot_are_answered_in_one_line(row):
    with pytest.raises(
        ssedb.ConfigError, match=r"action \[.*\]: neither a choice of Discrete\(3\)"
    ):
        Actions(spaces.Discrete(3))(torch.tensor([row]), (1,))


def test_observation_that_is_no_option_is_named():
    with pytest.raises(ssedb.ConfigError, match=r"observation 4: Discrete\(4\) has no such choice"):
        make_observations(spaces.Discrete(4))(torch.tensor([1, 4]), (2,))


@pytest.mark.parametrize(("low", "high"), [(-3.0, 200.0), (0.0, 4000.0), (0.0, 0.9)])
def test_pixels_out_of_range_are_named(low, high):
    images = Images((36, 36, 1), None)
    pixels = torch.linspace(low, high, 36 * 36).view(1, 36, 36, 1)
    with pytest.raises(ssedb.ConfigError, match="the space has 0 to 255; give them"):
        images(pixels, (1,))
