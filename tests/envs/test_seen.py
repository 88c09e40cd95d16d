"""What is seen of observations of every kind, and what is done with actions of every kind."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ssedb
from ssedb.actions import Box, Choices
from ssedb.errors import Blamed

IMAGE = spaces.Box(0, 255, (40, 50, 3), np.uint8)
CODES = spaces.Box(0, 255, (2, 3), np.uint8)


class Stranger(gymnasium.Env):
    """Observes what it is told to, all ones; the sum of the action is the reward."""

    def __init__(self, observations, actions=None):
        self.observation_space = observations
        self.action_space = actions or spaces.Discrete(2)

    def observation(self, space=None):
        space = space or self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: self.observation(part) for key, part in space.items()}
        if isinstance(space, spaces.Text):
            return "one"
        return np.ones(space.shape, space.dtype) if space.shape else 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        return self.observation(), float(np.sum(action)), self.count == 3, False, {}


gymnasium.register("Stranger-v0", Stranger)


def made(observations, actions=None, workers=0, **settings):
    kwargs = {"observations": observations, "actions": actions}
    kwargs |= settings.pop("env_kwargs", {})
    return ssedb.make_env("Stranger-v0", 2, env_kwargs=kwargs, env_workers=workers, **settings)


@pytest.mark.parametrize(
    ("observations", "seen"),
    [
        (spaces.Box(-1, 1, (3,)), [1, 1, 1]),
        (spaces.Box(-1, 1, (2, 2), np.float64), [1, 1, 1, 1]),
        (spaces.Box(-9, 9, (2,), np.int64), [1, 1]),
        (CODES, [1] * 6),
        (spaces.Discrete(3), [0, 1, 0]),
        (spaces.MultiBinary(2), [1, 1]),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 0, 1, 0]),
        (spaces.Dict(a=spaces.Discrete(2), b=CODES, c=spaces.Text(9)), [0, 1, *[1] * 6]),
        (spaces.Dict(a=spaces.Box(0, 1, (0,)), b=spaces.Discrete(3)), [0, 1, 0]),
    ],
)
def test_numbers_without_an_image_are_a_vector(observations, seen):
    env = made(observations)
    assert env.vectors
    frames = env.reset()
    assert frames.dtype == torch.float32
    assert frames.tolist() == [seen, seen]


@pytest.mark.parametrize("workers", [0, 2])
def test_vectors_rewards_and_last_frames_are_those_of_the_environment(workers):
    env = made(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1, 2)), workers)
    env.reset()
    for t in range(1, 4):
        step = env.step(torch.tensor([[0.25, 0.5], [-5.0, 0.5]]))
        assert step.rewards.tolist() == [0.75, -0.5]  # -5 is -1 within the bounds
        assert step.dones.tolist() == [t == 3] * 2
        assert step.frames.tolist() == [[1, 1, 1]] * 2
    assert step.final_frames().tolist() == [[1, 1, 1]] * 2
    env.close()


def test_dictionary_with_one_image_shows_the_image():
    env = made(spaces.Dict(place=spaces.Box(-1, 1, (3,)), view=IMAGE, words=spaces.Text(9)))
    assert not env.vectors
    assert (env.reset() == 1).all()
    assert env.reset().shape == (2, 84, 84)


def test_obs_key_names_what_is_seen_of_a_dictionary():
    both = spaces.Dict({"view": IMAGE, "other": IMAGE, "place": spaces.Box(-1, 1, (3,))})
    env = made(both, env_kwargs={"obs_key": "place"})
    assert env.reset().tolist() == [[1, 1, 1]] * 2
    assert made(both, env_kwargs={"obs_key": "other"}).reset().shape == (2, 84, 84)


@pytest.mark.parametrize(
    ("observations", "kwargs", "message"),
    [
        (spaces.Dict(a=IMAGE, b=IMAGE), {}, r"several images \(a, b\); use --env-kwargs obs_key=a"),
        (spaces.Dict(a=IMAGE), {"obs_key": "c"}, "obs_key='c': use one of a"),
        (IMAGE, {"obs_key": "c"}, "obs_key='c': observations are Box.*; leave it out"),
        (spaces.Dict(a=spaces.Text(3)), {}, "without an image or a number"),
        (spaces.Box(0, 1, (0,)), {}, "without a number to see"),
        (spaces.Text(3), {}, "needs uint8 images .* or vectors"),
        (spaces.Box(0, 1, (40, 40, 3)), {}, "needs uint8 images .* or vectors"),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), {}, "needs uint8 images .* or vectors"),
        (spaces.Box(0, 255, (3, 64, 64), np.uint8), {}, "needs uint8 images .* or vectors"),
        (spaces.Box(0, 255, (4, 64, 64, 3), np.uint8), {}, "needs uint8 images .* or vectors"),
        (spaces.Dict(a=CODES, b=spaces.Box(0, 1, (1, 40, 40))), {}, "needs uint8 images"),
    ],
)
def test_observations_that_cannot_be_seen_are_refused_in_one_line(observations, kwargs, message):
    with pytest.raises(ssedb.ConfigError, match=f"Stranger-v0': .*{message}[^\n]*$"):
        made(observations, env_kwargs=kwargs)


@pytest.mark.parametrize(
    ("actions", "space", "given", "rewards"),
    [
        (spaces.MultiDiscrete([3, 2]), Choices((3, 2)), [[2, 1], [0, 1]], [3, 1]),
        (spaces.MultiDiscrete([3, 2], start=[5, 1]), Choices((3, 2)), [[2, 1], [0, 1]], [9, 7]),
        (spaces.MultiBinary(2), Choices((2, 2)), [[1, 1], [0, 1]], [2, 1]),
        (spaces.Box(-2, 2, (2,)), Box((-2.0,) * 2, (2.0,) * 2), [[9.0, 1], [0.5, 0]], [3, 0.5]),
    ],
)
def test_actions_of_every_kind_reach_the_environment(actions, space, given, rewards):
    env = made(spaces.Box(-1, 1, (3,)), actions)
    assert env.num_actions == space
    env.reset()
    assert env.step(torch.tensor(given)).rewards.tolist() == rewards


def test_actions_of_another_kind_are_refused():
    with pytest.raises(ssedb.ConfigError, match=r"Stranger-v0': actions are Text.*floats"):
        made(IMAGE, spaces.Text(3))


@pytest.mark.parametrize(
    ("observations", "noise", "message"),
    [
        (spaces.Box(-1, 1, (3,)), "random-box", "RandomBox disturbs images, and .* vectors; use"),
        (IMAGE, "gaussian-dims", "GaussianDims disturbs vectors, and .* images; use .*: none, cl"),
    ],
)
def test_noise_that_does_not_fit_is_refused_in_one_line(observations, noise, message):
    with pytest.raises(ssedb.ConfigError, match=message) as refused:
        made(observations, noise=noise)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("noise", ["none", "sticky", "gaussian-dims", "tv-dims"])
def test_noises_that_fit_vectors_are_taken(noise):
    env = made(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), noise=noise)
    wider = 8 if noise.endswith("dims") else 0
    frames = env.reset()
    assert frames.shape == (2, 3 + wider)
    assert (frames[:, :3] == 1).all()
    assert env.step(torch.zeros(2, 2)).frames.shape == (2, 3 + wider)


class Misshapen(gymnasium.Env):
    """Observes in another shape than its space says, from its reset or from its third step on."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape, given, where):
        kind = np.uint8 if len(shape) > 1 else np.float32
        self.observation_space = spaces.Box(0, 255, tuple(shape), kind)
        self.given, self.where = tuple(given), where

    def observation(self, wrong):
        shape = self.given if wrong else self.observation_space.shape
        return np.zeros(shape, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(self.where == "reset"), {}

    def step(self, action):
        self.count += 1
        return self.observation(self.where == "step" and self.count > 2), 0.0, False, False, {}


gymnasium.register("Misshapen-v0", Misshapen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("shape", "given"), [([3], [4]), ([3], [1]), ([40, 50, 3], [40, 50]), ([40, 50], [1, 50])]
)
def test_observation_of_another_shape_than_the_space_is_blamed_on_the_environment(
    shape, given, where, workers
):
    kwargs = {"shape": shape, "given": given, "where": where}
    with pytest.raises(Blamed) as error:  # noqa: PT012
        env = ssedb.make_env("Misshapen-v0", 2, env_kwargs=kwargs, env_workers=workers)
        try:
            env.reset()
            for _ in range(3):
                env.step(torch.zeros(2, dtype=torch.int64))
        finally:
            env.close()
    said = f"Misshapen.{where} gave an observation of shape {given}, and its observation_space has"
    assert error.value.message == f"{said} {shape}"
    assert not error.value.may_pass


class Paints(gymnasium.Env):
    """Declares pictures of bytes, and gives another type."""

    def __init__(self, kind):
        self.observation_space = spaces.Box(0, 255, (40, 50, 3), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((40, 50, 3), 200 if self.kind == "int64" else 0.8, self.kind), {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


gymnasium.register("Paints-v0", Paints)


@pytest.mark.filterwarnings("ignore")
def test_image_of_floats_where_bytes_are_declared_is_blamed_on_the_environment():
    with pytest.raises(Blamed) as error:
        ssedb.make_env("Paints-v0", 2, env_kwargs={"kind": "float32"}, env_workers=0).reset()
    assert error.value.message == (
        "Paints.reset gave an image of float32 of shape [40, 50, 3], and its observation_space has "
        "[40, 50, 3] of uint8"
    )
    env = ssedb.make_env("Paints-v0", 2, env_kwargs={"kind": "int64"}, env_workers=0)
    assert env.reset().unique().tolist() == [200]
    env.close()
