"""A stop at any update and a resume: bit for bit the run that never stopped."""

import subprocess

import numpy as np
import pytest
import torch

from ssedb.envs import atari
from ssedb.envs.atari import AtariEnv
from ssedb.errors import ConfigError
from ssedb.runs.loop import resume, train
from ssedb.runs.progress import Progress
from tests.faults.forks import SMALL, last_state, numbers, same
from tests.helpers import Notes
from tests.toy import tiny_config

UPDATES = 3
SIZE = SMALL["num_envs"] * SMALL["rollout_steps"]
ATARI = dict(env="breakout", num_envs=2, minibatch_envs=1, rollout_steps=16)


def settings(**changes):
    return {**SMALL, "checkpoint_minutes": 5.0, "max_episode_steps": 5, **changes}


BOXES = {**ATARI, "noise": "random-box", "fidelity": "released"}


@pytest.mark.parametrize(
    ("changes", "updates"),
    [
        pytest.param({"noise": "sticky", "bonus": "db-ngu"}, [1, 2], id="rooms-memory"),
        pytest.param({"noise": "clouds", "reward_scale": "recent"}, [1, 2], id="rooms-clouds"),
        pytest.param({**ATARI, "noise": "sticky"}, [2], id="atari-sticky"),
        pytest.param(BOXES, [1, 2], id="atari-raw-boxes", marks=pytest.mark.slow),
    ],
)
def test_resume_at_any_update_is_bit_identical(tmp_path, monkeypatch, changes, updates):
    monkeypatch.setattr(atari, "EPISODES_PER_SEED", 6)
    train(tiny_config(tmp_path / "whole", **settings(**changes, steps=UPDATES * SIZE)))
    expected = last_state(tmp_path / "whole")
    for update in updates:
        out = tmp_path / f"stopped-{update}"
        train(tiny_config(out, **settings(**changes, steps=update * SIZE)))
        resume(out, notes := Notes(), steps=UPDATES * SIZE)
        assert notes.notes == [f"resumed at step {update * SIZE}"]
        assert numbers(out) == numbers(tmp_path / "whole")
        assert same(last_state(out), expected)
    assert numbers(tmp_path / "whole")[-1]["episodes"] > 0


PACK = "tar c run | gzip -1 | split -b 16K - run.tgz."
UNPACK = "cat ../home/run.tgz.* | tar xz"


def test_run_carried_in_parts_to_another_place_continues_bit_for_bit(tmp_path):
    home, there = tmp_path / "home", tmp_path / "there"
    for folder in (home, there):
        folder.mkdir()
    train(tiny_config(home / "run", **settings(steps=SIZE)))
    subprocess.run(PACK, shell=True, cwd=home, check=True)
    subprocess.run(UNPACK, shell=True, cwd=there, check=True)
    assert len(list(home.glob("run.tgz.*"))) > 1
    for folder in (home, there):
        resume(folder / "run", steps=2 * SIZE)
    assert numbers(there / "run") == numbers(home / "run")
    assert same(last_state(there / "run"), last_state(home / "run"))


def test_deterministic_run_uses_deterministic_kernels_to_its_end_and_when_resumed(tmp_path):
    seen = []

    class Sees(Progress):
        def log(self, row):
            seen.append(torch.are_deterministic_algorithms_enabled())

    train(tiny_config(tmp_path / "usual", **settings(steps=2 * SIZE)), Sees())
    exact = settings(steps=SIZE, deterministic=True)
    train(tiny_config(tmp_path / "exact", **exact), Sees())
    assert not torch.are_deterministic_algorithms_enabled()
    resume(tmp_path / "exact", Sees(), steps=2 * SIZE)
    assert seen == [False, False, True, True]
    assert numbers(tmp_path / "exact") == numbers(tmp_path / "usual")


def test_deterministic_with_the_engine_that_is_not_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="engine='fast': --deterministic takes eager steps"):
        tiny_config(tmp_path, engine="fast", deterministic=True)


@pytest.mark.parametrize("game", ["alien", pytest.param("breakout", marks=pytest.mark.slow)])
def test_atari_state_restores_episodes_of_different_ages(monkeypatch, game):
    monkeypatch.setattr(atari, "EPISODES_PER_SEED", 5)
    draws = np.random.default_rng(0)
    env = AtariEnv(game, 3, seed=1, max_steps=15, raw=game == "alien")
    env.reset()
    for _ in range(3):  # so that the three are not at the same age
        env._begin(np.array([True, False, False]))
        env._ages[0] = 0
        for _ in range(35):
            env.step(torch.from_numpy(draws.integers(0, env.num_actions, 3)))
    state = env.state_dict()
    assert len(set(state["ages"].tolist())) > 1
    assert state["seedings"].max() > 0
    again = AtariEnv(game, 3, seed=99, max_steps=15, raw=game == "alien")
    again.reset()
    again.step(torch.zeros(3, dtype=torch.int64))
    again.load_state_dict(state)
    ends = 0
    for _ in range(60):
        actions = torch.from_numpy(draws.integers(0, env.num_actions, 3))
        one, other = env.step(actions), again.step(actions)
        assert torch.equal(one.frames, other.frames)
        assert torch.equal(one.rewards, other.rewards)
        assert torch.equal(one.dones, other.dones)
        ends += int(one.dones.sum())
    assert ends > 3
    assert same(env.state_dict(), again.state_dict())


def test_atari_sticky_in_the_emulator_begins_episodes_afresh_and_says_so(tmp_path):
    sticky = settings(**ATARI, noise="sticky", noise_variant="frame", steps=SIZE)
    train(tiny_config(tmp_path / "run", **sticky))
    resume(tmp_path / "run", notes := Notes(), steps=2 * SIZE)
    assert notes.notes == [f"resumed at step {SIZE}; episodes begin afresh"]
