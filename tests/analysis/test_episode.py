"""An episode of a run's agent, and the bonus along it."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.analysis import episode as module
from ssedb.analysis.episode import record_episode, trace_bonus
from ssedb.envs.rooms.world import World
from ssedb.runs import checkpoint
from ssedb.runs.folder import saved_config
from tests.toy import tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a bonus that looks at observations, actions and next observations."""
    out = tmp_path_factory.mktemp("episode") / "run"
    settings = dict(bonus="icm", bonus_options={"feature_dim": 8, "channels": (4, 4, 4)})
    ssedb.train(
        tiny_config(
            out, env="rooms-small", noise="random-box", steps=256, obs_norm_steps=64, **settings
        )
    )
    return out


def test_episode_is_whole_and_its_pictures_fit(run):
    episode = record_episode(run, seed=5)
    world = World("small")
    state = world.start(1)
    for t, action in enumerate(episode.actions):
        assert torch.equal(episode.clean[t], world.pictures(state)[0])
        true = world.frames(state)[0]
        boxes = (true != episode.seen[t]).float().mean()
        assert 0 < boxes < 0.25
        state, _ = world.move(state, action[None])
    last = episode.seen[100]  # the episode's own last frame, not the first of the next
    assert (last != world.frames(state)[0]).sum() < (last != world.frames(world.start(1))[0]).sum()
    assert len(episode.seen) == len(episode) + 1 == 101
    stacks = episode.stacks(torch.tensor([0, 1, 50]))
    assert torch.equal(stacks[0], episode.seen[0].expand(4, -1, -1))
    assert torch.equal(stacks[1], episode.seen[[0, 0, 0, 1]])
    assert torch.equal(stacks[2], episode.seen[47:51])
    again = record_episode(run, seed=5)
    assert torch.equal(again.seen, episode.seen)
    trace = trace_bonus(episode, run, "cpu")
    assert trace.bonus.shape == (100,)
    assert trace.features.shape[0] == 100


def test_episode_bonus_is_that_of_the_checkpoint(run):
    episode = record_episode(run, seed=6, max_steps=20)
    assert len(episode) == 20
    config = saved_config(run)
    bonus = ssedb.make_bonus(config.bonus, (4, 84, 84), 5, **config.bonus_options)
    bonus.load_state_dict(checkpoint.load_latest(run / "checkpoints")[0]["bonus"])
    t = torch.arange(20)
    expected = bonus.reward(episode.stacks(t), episode.actions, episode.stacks(t + 1))
    np.testing.assert_allclose(trace_bonus(episode, run, "cpu").bonus, expected.numpy(), rtol=1e-5)


def test_episode_of_a_state_counting_bonus_passes_true_states(tmp_path):
    run = tmp_path / "run"
    ssedb.train(
        tiny_config(
            run, env="rooms-small", bonus="count", bonus_options={}, steps=256, obs_norm_steps=64
        )
    )
    episode = record_episode(run, seed=0, max_steps=30)
    trace = trace_bonus(episode, run)
    assert len(episode.states) == len(episode) == len(trace.bonus) == 30
    assert 0 < trace.bonus.min() <= trace.bonus.max() <= 1


def test_episode_in_chunks_has_the_rewards_of_an_episodic_bonus_at_once(tmp_path, monkeypatch):
    run = tmp_path / "run"
    options = {"feature_dim": 8, "channels": (4, 4, 4)}
    ssedb.train(tiny_config(run, bonus="e3b", bonus_options=options, steps=256, obs_norm_steps=16))
    episode = record_episode(run, seed=0, max_steps=20)
    whole = trace_bonus(episode, run, "cpu").bonus
    monkeypatch.setattr(module, "CHUNK", 7)
    np.testing.assert_allclose(trace_bonus(episode, run, "cpu").bonus, whole, rtol=1e-4)
