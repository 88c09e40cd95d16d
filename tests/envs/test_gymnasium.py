"""Other Gymnasium environments, through a small one of our own."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import ssedb
from ssedb.envs.names import canonical_env
from tests.envs.counters import Counter, episodes


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["CounterRgb-v0", "CounterGray-v0", "CounterOne-v0"])
def test_gymnasium_env_of_any_image_shape_works(name, workers):
    env = ssedb.make_env(name, num_envs=3, env_workers=workers)
    assert env.num_actions == 3
    assert (env.reset() == 0).all()
    for t in range(1, 7):
        step = env.step(torch.tensor([0, 1, 2]))
        assert step.rewards.tolist() == [5, 6, 7]
        assert step.dones.all() == (t == 6)
        assert (step.frames == (10 * t if t < 6 else 0)).all()
    assert (step.final_frames() == 60).all()
    env.close()


def test_copies_of_an_environment_begin_differently_and_the_same_with_the_same_seed(strangers):
    def first_frames(seed):
        env = ssedb.make_env("strangeworlds:Walker-v0", 5, seed=seed, env_workers=0)
        frames = env.reset().clone()
        env.close()
        return frames

    frames = first_frames(3)
    assert len(frames.unique(dim=0)) > 1
    assert torch.equal(first_frames(3), frames)
    assert not torch.equal(first_frames(4), frames)


def test_last_frame_of_an_episode_is_its_own(strangers):
    """A final frame's stripe is one step from the frame before; the next episode's is anywhere."""
    for workers in (0, 2):
        env = ssedb.make_env(
            "strangeworlds:Walker-v0", 4, seed=1, env_workers=workers, env_kwargs={"side": 84}
        )
        before, jumps = env.reset(), []
        for _ in range(20):
            step = env.step(torch.ones(4, dtype=torch.int64))
            last = step.final_frames() if step.final_frames else step.frames
            columns = [frames.float().mean(1).argmax(1) for frames in (before, last, step.frames)]
            assert ((columns[1] - columns[0]) % 84 == 1).all()
            jumps += ((columns[2] - columns[0]) % 84)[step.dones].tolist()
            before = step.frames
        env.close()
        assert len(jumps) > 4
        assert len(set(jumps)) > 2


def test_environments_import_no_run_folders():
    code = (
        "import sys, ssedb.envs.gymnasium; "
        "print(*(name for name in sys.modules if name.startswith('ssedb.')))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(ssedb.__file__).parent.parent)}
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "ssedb.envs.workers" in loaded
    assert {
        "ssedb.runs.blame",
        "ssedb.runs.folder",
        "ssedb.runs.checkpoint",
        "ssedb.bonuses",
    }.isdisjoint(loaded)


def test_closing_one_environment_leaves_the_others_working(strangers, tmp_path):
    """The random agent's environments close before those of training open; all share one canvas."""
    from tests.toy import tiny_config

    config = tiny_config(
        tmp_path / "run", env="strangeworlds:Shared-v0", steps=256, obs_norm_steps=64, env_workers=0
    )
    assert ssedb.train(config).finished


def test_env_kwargs_reach_the_environment(strangers):
    slow, fast = (episodes(0, noise="none", env_kwargs={"speed": speed}) for speed in (1, 3))
    assert torch.equal(slow[0], fast[0])
    assert not torch.equal(slow[1], fast[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_step_executes_actions_in_the_dtype_and_the_bounds_of_the_space(dtype):
    box, taken = gymnasium.spaces.Box(-0.1, 0.1, (1, 2), dtype), []

    class Steered(Counter):
        def __init__(self):
            super().__init__()
            self.action_space = box

        def step(self, action):
            taken.append(action)
            return super().step(5)

    name = f"Steered{box.dtype}-v0"
    gymnasium.register(name, Steered)
    env = ssedb.make_env(name, 1, env_workers=0)
    env.reset()
    env.step(torch.tensor([[7.0, 0.05]]))
    env.step(torch.tensor([[0.1, -7.0]]))
    env.close()
    assert all(box.contains(action) for action in taken)
    np.testing.assert_allclose(taken, [[[0.1, 0.05]], [[0.1, -0.1]]], rtol=1e-3)


def test_make_env_takes_a_number_of_numpy():
    env = ssedb.make_env("CounterRgb-v0", np.int64(2), env_workers=0)
    assert len(env.reset()) == 2
    env.close()


def test_env_id_is_kept_with_its_module(strangers):
    assert canonical_env("strangeworlds:Walker-v0") == "strangeworlds:Walker-v0"
    assert canonical_env("Walker-v0") == "strangeworlds:Walker-v0"  # it is imported by now
    assert canonical_env("CounterRgb-v0") == "tests.envs.counters:CounterRgb-v0"
    assert canonical_env("CartPole-v1") == "CartPole-v1"
    assert canonical_env("ale_py:ALE/MsPacman-v5") == "ms_pacman"


def test_run_named_by_a_bare_id_is_usable_under_its_module(strangers, tmp_path):
    """As one is that a script trained on an environment of its own."""
    from tests.toy import change_settings, tiny_config

    out = tmp_path / "run"
    ssedb.train(tiny_config(out, env="CounterRgb-v0", steps=256, obs_norm_steps=64))
    saved = (out / "config.toml").read_text()
    (out / "config.toml").write_text(
        saved.replace("tests.envs.counters:CounterRgb-v0", "CounterAlone-v0")
    )
    with pytest.raises(
        ssedb.ConfigError,
        match=r"config.toml: unknown environment 'CounterAlone-v0'; .*use module:Id",
    ):
        ssedb.evaluate(out, 1)
    gymnasium.register("CounterAlone-v0", Counter)
    change_settings(out, env="CounterAlone-v0")
    try:
        assert ssedb.evaluate(out, 1).lengths == [6]
    finally:
        del gymnasium.registry["CounterAlone-v0"]


@pytest.mark.parametrize(("limit", "length"), [(3, 3), (100, 4)])
def test_episode_ends_at_the_shorter_limit(limit, length):
    env = ssedb.make_env("CounterShort-v0", 2, max_episode_steps=limit)
    env.reset()
    dones = [env.step(torch.zeros(2, dtype=torch.int64)).dones.all().item() for _ in range(length)]
    assert dones == [False] * (length - 1) + [True]
    env.close()


def test_gymnasium_env_with_noise_trains(tmp_path):
    from tests.toy import tiny_config

    config = tiny_config(
        tmp_path / "run", env="CounterRgb-v0", noise="pixel", steps=256, obs_norm_steps=64
    )
    result = ssedb.train(config)
    assert result.summary["score"] > 0


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("CounterFloat-v0", {}, "needs uint8 images"),
        (
            "CounterRgb-v0",
            {"noise": "sticky", "noise_variant": "frame"},
            "noise_variant='frame' needs an Atari emulator.*use noise_variant='step'",
        ),
        (
            "CounterRgb-v0",
            {"env_kwargs": {"chanels": 1}},
            "unexpected keyword argument 'chanels'.*see --env-kwargs",
        ),
        (
            "rooms",
            {"env_kwargs": {"size": 8}},
            "size=8 is for gymnasium.make, and rooms is not made by it; leave it out",
        ),
        ("CounterRgb-v0", {"env_kwargs": {"max_episode_steps": 8}}, "max_episode_steps"),
        (
            "strangeworlds:Nothing-v0",
            {},
            "strangeworlds is imported and registers no 'Nothing-v0'; name the module",
        ),
        (
            "nowhere:Nothing-v0",
            {},
            "cannot import 'nowhere'.*install it, or set PYTHONPATH to its folder",
        ),
    ],
)
def test_gymnasium_env_that_does_not_fit_is_refused(strangers, name, settings, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        ssedb.make_env(name, 1, **settings)
