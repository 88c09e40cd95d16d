"""The lines of docs/environments.md that train on other packages, each run for real."""

import importlib.util
import os
import re
import shlex
from pathlib import Path

import gymnasium
import pytest
import torch

import ssedb
from ssedb import cli
from tests.helpers import logged_numbers, run_ssedb

DOCS = Path(__file__).parents[2] / "docs" / "environments.md"
LINES = re.findall(r"^    (ssedb train --env (\S+) .*--out runs/\w+)$", DOCS.read_text(), re.M)[:8]
TINY = [
    "--steps", "32", "--num-envs", "2", "--minibatch-envs", "2", "--rollout-steps", "16",
    "--obs-norm-steps", "16",
]  # fmt: skip
PACKAGES = {"Hopper-v5": "mujoco", "ssedb.envs.crafter": "crafter", "miniworld": "miniworld"}
SMALL = {"ssedb.envs.crafter": ["area=[16,16]"]}
"""Crafter takes seconds to make a map of the usual size."""


def need(package):
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize(("line", "env"), LINES, ids=[env for _, env in LINES])
def test_line_of_the_docs_trains_on_its_env(line, env, tmp_path):
    module = env.partition(":")[0]
    need(PACKAGES.get(module) or ("minigrid" if module == "minigrid" else None))
    args = [*shlex.split(line)[1:-1], str(tmp_path / "run"), *TINY, "--device", "cpu"]
    args += ["--env-kwargs", *SMALL[module]] if module in SMALL else []
    if module == "miniworld":  # OpenGL aborts the process where it cannot draw
        done = run_ssedb(*args, env={**os.environ, "PYGLET_HEADLESS": "1"})
        if "pyglet" in done.stderr or "OpenGL" in done.stderr:
            pytest.skip("miniworld cannot draw here")
        assert done.returncode == 0, done.stderr
    else:
        assert cli.main(args) == 0
    (row,) = logged_numbers(tmp_path / "run")
    assert row["steps"] == 32
    assert row["bonus_raw"] > 0


def test_docs_have_a_line_for_each_env():
    assert len(LINES) == 8
    assert {"CartPole-v1", "Hopper-v5"} < {env for _, env in LINES}


def test_agent_sees_what_the_environment_draws():
    need("pygame")
    env = ssedb.make_env("CartPole-v1", 1, env_kwargs={"obs_key": "render"}, env_workers=0)
    frames = env.reset()
    assert not env.vectors
    assert frames.shape == (1, 84, 84)
    assert len(frames.unique()) > 3
    moved = [env.step(torch.tensor([1])).frames for _ in range(8)]
    assert not torch.equal(moved[-1], frames)
    env.close()


def test_vectors_of_a_mujoco_task_are_those_of_gymnasium(monkeypatch):
    need("mujoco")
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

    seeds, reset = [], HopperEnv.reset

    def spy(self, *, seed=None, options=None):
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(HopperEnv, "reset", spy)
    ours = ssedb.make_env("Hopper-v5", 1, seed=3, env_workers=0)
    theirs = gymnasium.make("Hopper-v5")
    first = ours.reset()[0]
    seen = [(first, theirs.reset(seed=seeds[-1])[0])]
    for action in ([0.5, -0.5, 3.0], [0.1, 0.2, -1.0]):
        clipped = torch.tensor(action).clamp(-1, 1).numpy()
        step, (obs, reward, *_) = ours.step(torch.tensor([action])), theirs.step(clipped)
        seen.append((step.frames[0], obs))
        assert float(step.rewards) == pytest.approx(reward)
    for actual, expected in seen:
        assert torch.equal(actual, torch.tensor(expected, dtype=torch.float32))


def test_crafter_repeats_its_maps_and_ends_by_length():
    need("crafter")
    from ssedb.envs.crafter import Crafter

    env = Crafter(area=(16, 16), length=4)
    frames = []
    for _ in range(2):
        frames.append([env.reset(seed=5)[0]])
        for t in range(1, 5):
            frame, _, terminated, truncated, _ = env.step(1)
            frames[-1].append(frame)
            assert not terminated
            assert truncated == (t == 4)
    assert all((a == b).all() for a, b in zip(*frames, strict=True))
    assert (env.reset(seed=6)[0] != frames[0][0]).any()


@pytest.mark.filterwarnings("error")
def test_crafter_steps_pass_the_checks_of_gymnasium_without_a_warning():
    need("crafter")
    env = gymnasium.make("ssedb.envs.crafter:CrafterReward-v1", area=(16, 16))
    env.reset(seed=0)
    infos = [env.step(0)[4] for _ in range(3)]
    assert infos[1]["player_pos"] is not infos[2]["player_pos"]
