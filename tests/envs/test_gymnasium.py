"""Other Gymnasium environments, through a small one of our own."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import ssedb
from ssedb.envs import timeout
from ssedb.envs.names import canonical_env
from tests.helpers import is_alive, logged_numbers, wait_for
from tests.outside import forget_package, write_package


class Counter(gymnasium.Env):
    """Shows its step number as brightness; three actions numbered from 5; ends after 6 steps."""

    def __init__(self, channels=3, dtype=np.uint8):
        shape = (50, 40, channels) if channels else (50, 40)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(3, start=5)

    def picture(self):
        return np.full(self.observation_space.shape, 10 * self.count, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.picture(), {}

    def step(self, action):
        assert action in (5, 6, 7)
        self.count += 1
        return self.picture(), float(action), self.count == 6, False, {}


class Multiplier(Counter):
    """Multiplies matrices large enough for several threads, and collects garbage, in every step."""

    def step(self, action):
        torch.ones(512, 512) @ torch.ones(512, 512)
        gc.collect()
        return super().step(action)


class Laborious(Counter):
    """Takes half a second to make; may fail or die then, except in the process `learner`."""

    def __init__(self, fails=False, dies=False, learner=0):
        super().__init__()
        time.sleep(0.5)
        if learner and os.getpid() != learner:
            if fails:
                raise ZeroDivisionError("no more of them")
            if dies:
                os._exit(3)


gymnasium.register("Multiplier-v0", Multiplier)
gymnasium.register("Laborious-v0", Laborious)
for name, kwargs in {
    "Rgb": {},
    "Gray": {"channels": 0},
    "One": {"channels": 1},
    "Float": {"dtype": np.float32},
}.items():
    gymnasium.register(f"Counter{name}-v0", Counter, kwargs=kwargs)
gymnasium.register("CounterShort-v0", Counter, max_episode_steps=4)


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """A module of environments that nothing here has imported."""
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    forget_package()


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


def episodes(workers, noise="pixel", **settings):
    """Everything that 5 walkers show and pay in 25 steps."""
    env = ssedb.make_env(
        "strangeworlds:Walker-v0", 5, seed=3, noise=noise, env_workers=workers, **settings
    )
    generator = torch.Generator().manual_seed(0)
    seen = [env.reset().clone()]
    ends = 0
    for _ in range(25):
        step = env.step(torch.randint(2, (5,), generator=generator))
        ends += int(step.dones.sum())
        seen += [
            step.frames,
            step.rewards,
            step.dones,
            *([step.final_frames()] if step.final_frames else []),
        ]
    env.close()
    assert ends >= 10
    return seen


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


@pytest.mark.parametrize("workers", [1, 2, 5, 9])
def test_workers_of_any_number_give_the_same_frames_rewards_and_ends(strangers, workers):
    alone, shared = episodes(0), episodes(workers)
    assert len(alone) == len(shared)
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


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


def test_train_with_any_number_of_workers_is_the_same_run(strangers, tmp_path):
    from ssedb.sweep.grid import run_id
    from tests.toy import tiny_config

    rows, ids = [], set()
    for workers in (0, 2):
        config = tiny_config(
            tmp_path / f"run{workers}",
            env="strangeworlds:Walker-v0",
            steps=256,
            obs_norm_steps=64,
            env_workers=workers,
        )
        ssedb.train(config)
        rows.append(logged_numbers(config.out))
        ids.add(run_id(config))
    assert rows[0] == rows[1]
    assert len(ids) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="auto forks processes on Linux only")
def test_workers_auto_starts_processes_where_they_are_faster(strangers, monkeypatch):
    monkeypatch.setattr(
        torch, "get_num_threads", lambda: 2
    )  # as on a machine with two cores that are free
    for name, num_envs, expected in [("Slow-v0", 4, 2), ("Slow-v0", 1, 0), ("Walker-v0", 4, 0)]:
        env = ssedb.make_env(f"strangeworlds:{name}", num_envs)
        assert len(multiprocessing.active_children()) == expected, (name, num_envs)
        env.close()
        assert multiprocessing.active_children() == []


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_worker_env_may_compute_with_torch(monkeypatch, two_threads):
    monkeypatch.setattr(timeout, "TIME_OUT", 5.0)
    torch.ones(512, 512) @ torch.ones(
        512, 512
    )  # starts the threads of this process, which a fork does not have
    env = ssedb.make_env("Multiplier-v0", 2, env_workers=2)
    env.reset()
    assert env.step(torch.tensor([0, 1])).rewards.tolist() == [5, 6]
    env.close()


def test_worker_env_may_take_longer_to_make_than_to_step(monkeypatch):
    monkeypatch.setattr(timeout, "TIME_OUT", 0.5)
    env = ssedb.make_env("Laborious-v0", 6, env_workers=2)  # 1.5 s in each process
    assert (env.reset() == 0).all()
    env.close()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fails", "Laborious.__init__ raised ZeroDivisionError: no more of them"),
        ("dies", r"has died \(exit code 3\)"),
    ],
)
def test_worker_env_that_cannot_be_made_leaves_no_process(how, message):
    with pytest.raises(Exception, match=message):
        ssedb.make_env(
            "Laborious-v0", 2, env_workers=2, env_kwargs={how: True, "learner": os.getpid()}
        )
    assert multiprocessing.active_children() == []


def test_workers_that_are_not_forked_import_the_module_of_the_environment(strangers, monkeypatch):
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: spawn)
    env = ssedb.make_env("strangeworlds:Walker-v0", 2, env_workers=1)
    assert (env.reset() > 0).any()
    env.close()


def test_workers_continue_through_ctrl_c(strangers):
    """A terminal sends it to all of them; the learner decides when to stop."""
    env = ssedb.make_env("strangeworlds:Walker-v0", 2, env_workers=2)
    env.reset()
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGINT)
        process.join(0.5)
    assert len(multiprocessing.active_children()) == 2
    assert env.step([0, 0]).frames.shape[0] == 2
    env.close()


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


class Garbage:
    """Refers to itself, so that only the garbage collector frees it; notes in which process."""

    def __init__(self, notes):
        self.itself, self.notes = self, notes

    def __del__(self):
        with open(self.notes, "a") as file:
            print(os.getpid(), file=file)


@pytest.mark.skipif(sys.platform != "linux", reason="only forked processes inherit garbage")
def test_workers_free_no_garbage_of_the_learner(tmp_path):
    gc.collect()
    gc.disable()
    try:
        Garbage(tmp_path / "freed")
        env = ssedb.make_env("Multiplier-v0", 2, env_workers=2)
        env.reset()
        env.step(torch.tensor([0, 1]))
        env.close()
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "freed").read_text().split() == [str(os.getpid())]


def test_workers_end_with_an_environment_that_nobody_closes(strangers):
    env = ssedb.make_env("strangeworlds:Walker-v0", 4, env_workers=2)
    assert len(multiprocessing.active_children()) == 2
    del env
    gc.collect()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("dies", "message"),
    [
        (False, "have not answered for 1 s"),
        (True, r"has died \(exit code 3\); --env-workers 0 steps"),
    ],
    ids=["stuck", "dies"],
)
def test_worker_that_is_stuck_or_dies_ends_training_and_leaves_no_process(
    strangers, tmp_path, monkeypatch, dies, message
):
    from tests.toy import tiny_config

    monkeypatch.setattr(timeout, "TIME_OUT", 1.0)
    config = tiny_config(
        tmp_path / "run",
        env="strangeworlds:Stuck-v0",
        env_workers=2,
        env_kwargs={"dies": dies},
        obs_norm_steps=8,
    )
    with pytest.raises(ssedb.TrainingError, match=message):
        ssedb.train(config)
    assert multiprocessing.active_children() == []


def test_workers_end_with_a_learner_that_is_killed(strangers, tmp_path):
    code = (
        "import multiprocessing, threading, time, torch, ssedb\n"
        "env = ssedb.make_env('strangeworlds:Stuck-v0', 4, env_workers=2)\n"
        "env.reset()\n"
        "actions = torch.zeros(4, dtype=torch.int64)\n"
        "for _ in range(3): env.step(actions)\n"
        "threading.Thread(target=env.step, args=(actions,), daemon=True).start()\n"
        "time.sleep(0.5)\n"  # both are stuck now
        "print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        "time.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(ssedb.__file__).parent.parent)])
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    children = [int(word) for word in process.stdout.readline().split()]
    assert len(children) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for(lambda: not any(is_alive(child) for child in children), seconds=10)


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


def test_env_id_is_kept_with_its_module(strangers):
    assert canonical_env("strangeworlds:Walker-v0") == "strangeworlds:Walker-v0"
    assert canonical_env("Walker-v0") == "strangeworlds:Walker-v0"  # it is imported by now
    assert canonical_env("CounterRgb-v0") == f"{__name__}:CounterRgb-v0"
    assert canonical_env("CartPole-v1") == "CartPole-v1"
    assert canonical_env("ale_py:ALE/MsPacman-v5") == "ms_pacman"


def test_run_named_by_a_bare_id_is_usable_under_its_module(strangers, tmp_path):
    """As one is that a script trained on an environment of its own."""
    from tests.toy import change_settings, tiny_config

    out = tmp_path / "run"
    ssedb.train(tiny_config(out, env="CounterRgb-v0", steps=256, obs_norm_steps=64))
    saved = (out / "config.toml").read_text()
    (out / "config.toml").write_text(saved.replace(f"{__name__}:CounterRgb-v0", "CounterAlone-v0"))
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
        ("CounterRgb-v0", {"noise": "sticky", "sticky": "frame"}, "use sticky='step'"),
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
