"""Environments that are stuck, die, leave or answer nonsense: a named error, and no orphans."""

import dataclasses
import math
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import ssedb
from ssedb import cli
from ssedb.envs import timeout
from ssedb.errors import Blamed, ConfigError, TrainingError
from ssedb.runs.folder import RunFolder
from ssedb.runs.loop import train
from ssedb.runs.progress import Progress
from tests.faults.forks import SMALL, last_state
from tests.toy import tiny_config

REWARDS = {"nan": math.nan, "inf": -math.inf, "none": None, "text": "much", "fine": np.float64(2)}


class Faulty(gymnasium.Env):
    """Does `what` in `where`, in the process that may."""

    def __init__(self, where="", what="", spares=0):
        self.observation_space = gymnasium.spaces.Box(0, 255, (36, 36), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.where, self.what, self.spares = where, what, spares
        self.misbehave("make")

    def misbehave(self, where):
        if where != self.where or os.getpid() == self.spares:
            return
        if self.what == "stuck":
            time.sleep(30)
        if self.what == "exit":
            sys.exit(0)
        if self.what == "timeout":
            raise TimeoutError("of its own")
        if self.what == "late timeout":
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls > 4:
                raise TimeoutError("late")
        if self.what == "leave":
            os.chdir("/")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.misbehave("reset")
        return np.zeros((36, 36), np.uint8), {}

    def close(self):
        self.misbehave("close")

    def step(self, action):
        self.misbehave("step")
        return np.zeros((36, 36), np.uint8), REWARDS.get(self.what, 0.0), False, False, {}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    gymnasium.register("Faulty-v0", Faulty)
    monkeypatch.setattr(timeout, "TIME_OUT", 1.0)
    monkeypatch.setattr(timeout, "CONSTRUCTION_TIME_OUT", 1.0)
    yield
    del gymnasium.registry["Faulty-v0"]
    assert multiprocessing.active_children() == []


def used(workers, **kwargs):
    env = ssedb.make_env("Faulty-v0", 2, env_workers=workers, env_kwargs=kwargs)
    try:
        env.reset()
        return env.step(torch.tensor([0, 1])).rewards.tolist()
    finally:
        env.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("where", ["make", "reset", "step"])
def test_stuck_environment_is_given_up(workers, where):
    began = time.monotonic()
    spares = os.getpid() if workers else 0
    with pytest.raises(TrainingError, match=r"(has not ended|have not answered) for 1 s"):
        used(workers, where=where, what="stuck", spares=spares)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("what", ["nan", "inf", "none", "text"])
def test_reward_that_is_no_finite_number_is_named_at_once(workers, what):
    shown = repr(REWARDS[what])
    with pytest.raises(Blamed) as error:
        used(workers, what=what)
    assert error.value.message == f"Faulty.step gave the reward {shown}, no finite number"
    assert not error.value.may_pass


def test_reward_of_any_number_type_is_taken():
    assert used(0, what="fine") == [2.0, 2.0]


def small_config(out, workers, **kwargs):
    settings = {**SMALL, "env": "Faulty-v0", "noise": "none", "env_workers": workers}
    return tiny_config(out, **settings, env_kwargs=kwargs)


def test_environment_that_calls_exit_ends_the_run_with_an_error(tmp_path, capsys):
    flags = ["--env", "Faulty-v0", "--preset", "rooms", "--out", str(tmp_path / "run")]
    flags += ["--env-workers", "0", "--env-kwargs", "where=step", "what=exit"]
    assert cli.main(["train", *flags]) == 1
    said = "ssedb: Faulty.misbehave raised SystemExit (it called sys.exit(0)), before training; "
    assert said in capsys.readouterr().err
    with pytest.raises(TrainingError, match=r"Faulty\.misbehave raised SystemExit"):
        train(small_config(tmp_path / "one", 1, where="reset", what="exit", spares=os.getpid()))
    with pytest.raises(ConfigError, match=r"cannot make .*Faulty-v0': SystemExit \(it called"):
        ssedb.make_env("Faulty-v0", 1, env_kwargs={"where": "make", "what": "exit"})


@pytest.mark.parametrize("what", ["exit", "timeout"])
def test_environment_that_fails_to_close_changes_nothing(tmp_path, what):
    kind = dict(env="Faulty-v0", env_kwargs={"where": "close", "what": what})
    config = tiny_config(tmp_path / "run", **{**SMALL, **kind})
    assert train(config).finished

    class Fails(Progress):
        def step(self, steps):
            raise KeyError("the real error")

    with pytest.raises(KeyError, match="the real error"):
        train(dataclasses.replace(config, out=tmp_path / "other"), Fails())
    RunFolder.reopen(tmp_path / "other").close()  # it is free again


@pytest.mark.parametrize("workers", [0, 1])
def test_environments_are_all_closed_though_one_fails_to(tmp_path, workers):
    class Closing(Faulty):
        def close(self):
            with open(tmp_path / "closed", "a") as file:
                file.write("x")
            raise RuntimeError("in close")

    gymnasium.register("Closing-v0", Closing)
    env = ssedb.make_env("Closing-v0", 3, env_workers=workers)
    before = len((tmp_path / "closed").read_text())  # of the first, which shows what they are
    env.close()
    assert len((tmp_path / "closed").read_text()) == before + 3


def test_time_out_that_an_environment_raises_is_its_own_error():
    with pytest.raises(TimeoutError, match="of its own"):
        used(0, where="step", what="timeout")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGSTOP, "have not answered for 1 s"),
        (signal.SIGKILL, r"has died \(exit code -9\)"),
    ],
)
def test_worker_that_is_stopped_or_killed_ends_the_run_and_leaves_none(tmp_path, number, said):
    class Strikes(Progress):
        def log(self, row):
            os.kill(multiprocessing.active_children()[0].pid, number)

    with pytest.raises(TrainingError, match=said):
        train(small_config(tmp_path / "run", 2), Strikes())
    assert last_state(tmp_path / "run")["steps"] == 32


@pytest.mark.parametrize("workers", [0, 1])
def test_environment_that_changes_the_directory_leaves_the_run_where_it_is(
    tmp_path, monkeypatch, workers
):
    monkeypatch.chdir(tmp_path)
    config = small_config(Path("run"), workers, where="step", what="leave")
    assert train(dataclasses.replace(config, max_episode_steps=20)).finished
    assert Path.cwd() == tmp_path
    assert last_state(tmp_path / "run")["steps"] == 128
    ssedb.evaluate("run", 1)
    assert (tmp_path / "run" / "eval.json").exists()


def test_error_in_a_run_whose_folder_was_replaced_leaves_the_other_run_alone(tmp_path):
    out = tmp_path / "run"

    class Replaced(Progress):
        def look(self, done, steps):
            if out.with_name("moved").exists():
                return
            out.rename(out.with_name("moved"))
            out.mkdir()

    config = small_config(out, 0, where="step", what="late timeout")
    with pytest.raises(TrainingError, match=r"Faulty\.misbehave raised TimeoutError") as error:
        train(config, Replaced())
    assert "error.log" not in str(error.value)
    assert list(out.iterdir()) == []
