"""Transitions of Rooms and of games, without noise and under draws of it."""

import gymnasium
import pytest
import torch

import ssedb
from ssedb.collect import environments
from ssedb.collect.environments import env_of
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.noisy import NoisyEnv
from ssedb.envs.rooms.world import World
from ssedb.noises import make_noise
from ssedb.noises.base import Noise
from ssedb.transitions import collect_transitions, draw_transitions
from tests.envs.counters import Counter
from tests.toy import Grid, tiny_config


@pytest.mark.usefixtures("few_games")
def test_game_transitions_are_one_game_under_several_draws(tmp_path):
    config = tiny_config(tmp_path, env="breakout", noise="random-box", max_episode_steps=40)
    data = collect_transitions(config, 50, 3, 0, torch.device("cpu"))
    assert data.clean.shape == (5, 50, 84, 84)
    assert data.noisy.shape == (5, 3, 50, 84, 84)
    touched = (
        (data.noisy != data.clean[:, None]).double().mean((-1, -2))
    )  # boxes cover a part of each picture
    assert 0 < touched.min() <= touched.max() < 0.9
    assert not torch.equal(data.noisy[:, 0], data.noisy[:, 1])
    obs, actions, next_obs = data.pair(1)
    assert torch.equal(obs[:, 1:], next_obs[:, :-1])  # shared frames carry the same noise
    env = env_of(config, 4, 3, torch.device("cpu"))
    # The same game played once more: the first transition of each begins at step 1.
    frames = [env.env.reset()]
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        chosen = torch.randint(env.num_actions, (4,), generator=generator)
        frames.append(to_agent_frames(env.env.step(chosen).frames))
    assert torch.equal(data.clean[:, :4], torch.stack(frames[1:6]))
    assert torch.equal(actions[:4], chosen)


class Told(Noise):
    """Remembers nothing, and keeps what it is told of each step."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "steps", [])

    def begin(self, num_envs, num_actions, generator):
        return {"nothing": torch.zeros(num_envs)}

    def advance(self, memory, actions, dones, generator):
        self.steps.append((actions, dones))
        return memory


def test_noise_of_walks_advances_by_their_actions_and_no_end():
    noise = Told()
    data = draw_transitions(World("tiny"), None, 6, 2, noise, seed=0)
    actions, dones = map(torch.stack, zip(*noise.steps, strict=True))
    assert actions.shape == (4, 12)
    assert torch.equal(actions[-1], data.actions.repeat(2))
    assert not dones.any()


def test_noise_of_games_advances_by_their_actions_and_ends(tmp_path, monkeypatch):
    env = NoisyEnv(Grid(16, episode=9), Told())
    monkeypatch.setattr(environments, "env_of", lambda *args, **settings: env)
    collect_transitions(tiny_config(tmp_path), 20, 2, 0, torch.device("cpu"))
    actions, dones = map(torch.stack, zip(*env.noise_state.noise.steps, strict=True))
    assert torch.equal(actions[:, :16], actions[:, 16:])
    ends = torch.arange(1, len(dones) + 1) % 9 == 0
    assert ends.any()
    assert torch.equal(dones, ends[:, None].expand(-1, 32))


def test_walks_halves_come_from_the_same_states():
    world = World("small")
    first = torch.zeros(world.num_states, dtype=torch.bool)
    first[world.state_ids(world.start(1))] = (
        True  # only the start was visited, so half of all walks begin there
    )
    data = draw_transitions(world, first, 400, 2, make_noise("none"), seed=0)
    cells = (data.states // world.scenes_per_cell).view(2, 200)
    begun = (data.clean[0] == world.frames(world.start(1))).all((1, 2))
    assert begun.sum() >= 200
    near = [(half[:, None] == cells.flatten().mode().values).double().mean() for half in cells]
    assert abs(near[0] - near[1]) < 0.15


class OfLength(Counter):
    """Shows the age of its episodes of a fixed length."""

    def __init__(self, length):
        super().__init__()
        self.length = length

    def step(self, action):
        obs, reward, _, *others = super().step(action)
        return obs, reward, self.count == self.length, *others


gymnasium.register("OfLength-v0", OfLength)


@pytest.mark.parametrize("length", [6, 8, 12])
def test_transitions_of_episodes_of_a_fixed_length_are_of_all_ages(tmp_path, length):
    kwargs = dict(env_kwargs={"length": length}, env_workers=0)
    config = tiny_config(tmp_path, env="OfLength-v0", noise="random-box", **kwargs)
    data = collect_transitions(config, 1000, 1, 0, torch.device("cpu"))
    ages, counts = data.clean[-1, :, 0, 0].div(10).unique(return_counts=True)
    assert ages.tolist() == list(range(4, length))
    assert counts.min() > 1000 / len(ages) / 3


def test_probe_of_a_game_that_ends_at_once_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ssedb.transitions.COLLECT_ENVS", 1)
    # Or thousands of episodes would begin.
    monkeypatch.setattr("ssedb.transitions.COLLECT_APART", 1)
    config = tiny_config(tmp_path, env="breakout", noise="random-box", max_episode_steps=3)
    with pytest.raises(ssedb.ConfigError, match="breakout: episodes end too soon to be probed"):
        collect_transitions(config, 10, 2, 0, torch.device("cpu"))
