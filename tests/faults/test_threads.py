"""Threads: their number is a setting of the run, and one thread of a process trains at a time."""

import threading

import pytest
import torch

from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.runs.evaluation import evaluate
from ssedb.runs.folder import saved_config
from ssedb.runs.loop import resume
from ssedb.runs.progress import Progress
from tests.faults.forks import last_state, numbers, same, small_run

SIZES = dict(policy_width=256, num_envs=8, minibatch_envs=8, rollout_steps=16)
"""Large enough that torch splits its sums."""


@pytest.fixture
def threads():
    """Set the number of torch's threads for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_number_of_threads_is_recorded_and_kept_whatever_the_process_has(tmp_path, threads):
    seen = []

    class Sees(Progress):
        def log(self, row):
            seen.append(torch.get_num_threads())

    threads(2)
    small_run(tmp_path / "whole", steps=256, threads="auto", **SIZES)
    assert saved_config(tmp_path / "whole").threads == 2
    small_run(tmp_path / "halves", steps=128, threads="auto", **SIZES)
    threads(1)
    resume(tmp_path / "halves", Sees(), steps=256)
    assert (seen, torch.get_num_threads()) == ([2], 1)
    assert saved_config(tmp_path / "halves").threads == 2
    small_run(tmp_path / "asked", steps=256, threads=2, **SIZES)
    for name in ("halves", "asked"):
        assert numbers(tmp_path / name) == numbers(tmp_path / "whole")
        assert same(last_state(tmp_path / name), last_state(tmp_path / "whole"))


def test_run_in_another_thread_of_the_process_is_refused_in_one_line(tmp_path):
    outcomes = {}

    def attempt(name, work):
        try:
            work()
        except ConfigError as error:
            outcomes[name] = str(error)

    class Meanwhile(Progress):
        def log(self, row):
            others = {
                "train": lambda: small_run(tmp_path / "other"),
                "eval": lambda: evaluate(tmp_path / "run", 1),
            }
            for name, work in others.items():
                thread = threading.Thread(target=attempt, args=(name, work))
                thread.start()
                thread.join()

    small_run(tmp_path / "run", steps=64, progress=Meanwhile())
    assert set(outcomes) == {"train", "eval"}
    for said in outcomes.values():
        assert said.startswith("another thread of this process trains a run, and both would draw")
    assert not (tmp_path / "other").exists()
    small_run(tmp_path / "other", steps=64)  # now it may
    assert numbers(tmp_path / "other") == numbers(tmp_path / "run")


@pytest.mark.parametrize("number", [0, "many", 1.5])
def test_threads_must_be_a_number(number):
    with pytest.raises(ConfigError, match=f"threads={number!r}: must be"):
        TrainConfig(threads=number)
