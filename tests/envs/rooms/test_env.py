"""Rooms as an environment: episodes, restoring, and runs on it."""

import numpy as np
import pytest
import torch

import ssedb
from ssedb.envs.rooms.env import STAGGER, RoomsEnv
from ssedb.envs.rooms.world import World
from tests.helpers import logged_numbers
from tests.toy import tiny_config


def test_episodes_when_staggered_end_by_group_and_keep_the_last_frame():
    env = RoomsEnv(32, "small", max_steps=48)
    first = env.reset()
    env.stagger()
    ends = [[] for _ in range(32)]
    for t in range(1, 150):
        step = env.step(torch.full((32,), 3))
        for i in torch.nonzero(step.dones).flatten().tolist():
            ends[i].append(t)
            assert torch.equal(step.frames[i], first[i])
            assert not torch.equal(step.final_frames()[i], step.frames[i])
    for i, times in enumerate(ends):
        assert times[0] == 48 - i % STAGGER * 3
        assert set(np.diff(times)) == {48}


def test_step_in_every_state_is_the_move_of_the_world():
    world = World("small")
    env = RoomsEnv(world.num_states, "small")
    env.reset()
    ids = torch.arange(world.num_states)
    for action in range(world.num_actions):
        env.true_states().copy_(ids)
        actions = torch.full_like(ids, action)
        moved, rewards = world.move(world.state_of(ids), actions)
        step = env.step(actions)
        assert torch.equal(step.rewards, rewards)
        assert torch.equal(env.true_states(), world.state_ids(moved))
        assert torch.equal(step.frames, world.frames(moved))


def test_reset_in_the_middle_of_episodes_begins_whole_ones_at_the_start():
    env = RoomsEnv(3, "tiny", max_steps=10)
    first, states = env.reset(), env.true_states().clone()
    for action in (3, 3, 1, 1):
        env.step(torch.full((3,), action))
    assert not torch.equal(env.true_states(), states)
    assert torch.equal(env.reset(), first)
    assert torch.equal(env.true_states(), states)
    ends = [env.step(torch.zeros(3, dtype=torch.int64)).dones.all() for _ in range(10)]
    assert ends.index(True) == 9


def test_reset_outside_of_training_begins_whole_episodes(tmp_path):
    from ssedb.runs.evaluation import evaluate
    from ssedb.trainer import Trainer

    config = tiny_config(tmp_path / "run", env="rooms-small", steps=256, obs_norm_steps=64)
    ssedb.train(config)
    assert evaluate(tmp_path / "run", 5, device="cpu").lengths == [100] * 5
    assert len(set(Trainer(config).env.state_dict()["env"]["age"].tolist())) == 8


def test_rooms_when_restored_continues_exactly():
    env, twin = RoomsEnv(7), RoomsEnv(7)
    generator = torch.Generator().manual_seed(0)
    env.reset()
    for _ in range(40):
        env.step(torch.randint(5, (7,), generator=generator))
    twin.load_state_dict(env.state_dict())
    for _ in range(600):
        actions = torch.randint(5, (7,), generator=generator)
        first, second = env.step(actions), twin.step(actions)
        assert torch.equal(first.frames, second.frames)
        assert torch.equal(first.dones, second.dones)
    assert torch.equal(env.visit_counts.pair_visits, twin.visit_counts.pair_visits)
    assert env.metrics() == twin.metrics()


def test_random_agent_in_a_million_steps_sees_under_a_quarter_of_the_states():
    env = RoomsEnv(256)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    while env.visit_counts.steps < 1_000_000:  # eight whole episodes in each world
        env.step(torch.randint(5, (256,), generator=generator))
    assert env.metrics()["states_share"] < 0.25


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("rooms", "rooms"),
        ("Rooms-Small", "rooms-small"),
        ("ROOMS-tiny", "rooms-tiny"),
        ("rooms-medium@0", "rooms"),
    ],
)
def test_rooms_by_any_spelling_has_one_name(name, canonical):
    assert ssedb.TrainConfig(env=name).env == canonical
    assert ssedb.TrainConfig(env="rooms-large@12").env == "rooms-large@12"
    with pytest.raises(ssedb.ConfigError, match="unknown environment 'rooms-huge'"):
        ssedb.TrainConfig(env="rooms-huge")


def test_training_when_resumed_logs_the_same_coverage(tmp_path):
    from ssedb.runs.loop import resume, train

    settings = dict(env="rooms-small", noise="clouds", obs_norm_steps=64)
    whole = train(tiny_config(tmp_path / "whole", steps=512, **settings))
    train(tiny_config(tmp_path / "halves", steps=256, **settings))
    halves = resume(tmp_path / "halves", steps=512)
    rows = [logged_numbers(run.out) for run in (whole, halves)]
    assert rows[0] == rows[1]
    assert rows[0][-1]["states_seen"] > rows[0][0]["states_seen"] > 1
