"""Environments in worker processes: same numbers, clean ends, whatever happens."""

import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest
import torch

import ssedb
from ssedb.envs import timeout
from tests.envs.counters import Counter, episodes
from tests.helpers import is_alive, logged_numbers, wait_for


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


class Starter(Counter):
    """Starts a program in every step and ends it; the reward is the signal that did."""

    def step(self, action):
        with subprocess.Popen(["sleep", "9"]) as program:
            program.terminate()
        obs, _, *ends = super().step(action)
        return obs, float(-program.returncode), *ends


gymnasium.register("Multiplier-v0", Multiplier)
gymnasium.register("Starter-v0", Starter)

gymnasium.register("Laborious-v0", Laborious)


@pytest.mark.parametrize("workers", [1, 2, 5, 9])
def test_workers_of_any_number_give_the_same_frames_rewards_and_ends(strangers, workers):
    alone, shared = episodes(0), episodes(workers)
    assert len(alone) == len(shared)
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


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


@pytest.mark.parametrize("workers", [0, 2])
def test_close_of_closed_environments_returns_at_once(monkeypatch, workers):
    monkeypatch.setattr(timeout, "TIME_OUT", 20.0)
    env = ssedb.make_env("Multiplier-v0", 2, env_workers=workers)
    env.close()
    began = time.monotonic()
    env.close()
    assert time.monotonic() - began < 10


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


def test_workers_end_though_ctrl_c_ends_the_wait_for_them(strangers, monkeypatch):
    env = ssedb.make_env("strangeworlds:Walker-v0", 4, env_workers=2)

    def interrupted(process, seconds=None):
        if seconds is not None:
            raise KeyboardInterrupt
        join(process)

    kind = type(multiprocessing.active_children()[0])
    join = kind.join
    monkeypatch.setattr(kind, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.close()
    assert multiprocessing.active_children() == []


def test_workers_whose_start_fails_end_those_that_have_started(strangers, monkeypatch):
    context = multiprocessing.get_context("fork").Process
    start, started = context.start, []

    def limited(process):
        if started:
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        started.append(start(process))

    monkeypatch.setattr(context, "start", limited)
    message = "cannot start a process that steps environments: no more processes; end other"
    with pytest.raises(ssedb.TrainingError, match=message) as error:
        ssedb.make_env("strangeworlds:Walker-v0", 4, env_workers=2)
    assert error.value.may_pass
    assert multiprocessing.active_children() == []


def test_workers_that_are_not_forked_import_the_module_of_the_environment(strangers, monkeypatch):
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: spawn)
    env = ssedb.make_env("strangeworlds:Walker-v0", 2, env_workers=1)
    assert (env.reset() > 0).any()
    env.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_workers_continue_through_signals_to_all(strangers, number):
    """A terminal or a scheduler signals all processes; the learner decides when to stop."""
    env = ssedb.make_env("strangeworlds:Walker-v0", 2, env_workers=2)
    env.reset()
    for process in multiprocessing.active_children():
        os.kill(process.pid, number)
        process.join(0.2)
    assert len(multiprocessing.active_children()) == 2
    assert env.step([0, 0]).frames.shape[0] == 2
    env.close()


def test_program_that_a_worker_env_starts_ends_when_asked():
    env = ssedb.make_env("Starter-v0", 1, env_workers=1)
    env.reset()
    assert env.step([0]).rewards.tolist() == [signal.SIGTERM]
    env.close()


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


@pytest.mark.parametrize(
    "kind",
    [
        "waiting",
        pytest.param(
            "stopped",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells them"),
        ),
        "made on a thread",  # Linux would end these with their thread, and is not asked to
    ],
)
def test_workers_end_with_a_learner_that_is_killed(strangers, tmp_path, kind):
    code = (
        "import multiprocessing, threading, time, torch, ssedb\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "make = lambda: ssedb.make_env('strangeworlds:Stuck-v0', 4, env_workers=2)\n"
        f"on_thread = {kind == 'made on a thread'}\n"
        "env = ThreadPoolExecutor(1).submit(make).result() if on_thread else make()\n"
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
    for child in children if kind == "stopped" else ():
        os.kill(child, signal.SIGSTOP)
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        wait_for(lambda: not any(is_alive(child) for child in children), seconds=10)
    finally:  # one that is stopped would stay for ever
        for child in filter(is_alive, children):
            os.kill(child, signal.SIGKILL)
