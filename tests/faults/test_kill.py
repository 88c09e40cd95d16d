"""kill -9 at any moment: no run is lost, and its numbers are those of a run that was left alone."""

import json
import os
import random
import shutil
import signal
import sys
import time

import pytest
import torch

from ssedb.runs import checkpoint
from ssedb.runs.folder import RunFolder
from ssedb.runs.lock import FolderLock
from ssedb.runs.loop import resume
from tests.faults.forks import (
    ended,
    forked,
    gone_on,
    last_state,
    numbers,
    same,
    small_run,
)
from tests.toy import tiny_config

SAVING = ("runs/folder.py", "runs/files.py", "runs/checkpoint.py")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbs, and how long it takes."""
    out = tmp_path_factory.mktemp("whole") / "run"
    small_run(out)
    began = time.perf_counter()
    small_run(out.with_name("again"))
    return out, time.perf_counter() - began


def kill_at_line(number):
    """Kill this process before it runs that line of the code that saves, counted from here."""
    left = number

    def trace(frame, event, arg):
        nonlocal left
        if event == "line" and frame.f_code.co_filename.endswith(SAVING):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_before_every_line_of_a_save_leaves_a_good_checkpoint(tmp_path, monkeypatch, every):
    monkeypatch.setattr(FolderLock, "forget", lambda lock: None)  # forks save in the run's place
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    for steps in (1, 2):
        run.save_checkpoint({"steps": steps}, {"steps": steps})
    shutil.copytree(run.checkpoints, tmp_path / "good")

    def save():
        kill_at_line(line)
        run.save_checkpoint({"steps": 3}, {"steps": 3})

    reached, parts, line, code = set(), 0, 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        line += every
        code = ended(forked(save))
        told = []
        state, about = checkpoint.load_latest(run.checkpoints, tell=told.append)
        assert (told, state["steps"] == about["steps"]) == ([], True)
        reached.add(state["steps"])
        if left := list(run.checkpoints.glob(".*.part")):
            parts += 1
            run.remove_leftovers()
            assert not any(part.exists() for part in left)
        shutil.rmtree(run.checkpoints)
        shutil.copytree(tmp_path / "good", run.checkpoints)
    run.close()
    assert (code, reached, parts > 3, line > 20 * every) == (0, {2, 3}, True, True), line


def kill_at_random_moments(folder, whole, kills, seed):
    """Kill runs at random moments, go on with each until it ends, and compare it to the whole."""
    out, seconds = whole
    draw = random.Random(seed)
    left = kills
    while left > 0:
        run = folder / "run"
        for _ in range(draw.randint(1, 3)):  # a run may be killed more than once
            pid = forked(lambda run=run: gone_on(run))
            time.sleep(draw.uniform(0, 1.2 * seconds))
            os.kill(pid, signal.SIGKILL)
            if ended(pid) == -signal.SIGKILL:
                left -= 1
            else:  # it was done: the machine is faster than it was
                seconds *= 0.8
        gone_on(run)
        assert numbers(run) == numbers(out)
        assert same(last_state(run), last_state(out))
        summaries = [json.loads((path / "summary.json").read_text()) for path in (run, out)]
        for summary in summaries:
            summary["last"].pop("sps")
        assert summaries[0] == summaries[1]
        shutil.rmtree(run)


def test_kill_at_random_moments_gives_the_numbers_of_the_whole_run(tmp_path, whole):
    kill_at_random_moments(tmp_path, whole, kills=5, seed=0)


@pytest.mark.slow
def test_200_kills_at_random_moments_give_the_numbers_of_the_whole_run(tmp_path, whole):
    kill_at_random_moments(tmp_path, whole, kills=200, seed=1)


def test_kill_between_last_checkpoint_and_summary_is_finished_by_resume(tmp_path, whole):
    out, _ = whole
    shutil.copytree(out, tmp_path / "run")
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    (tmp_path / "run" / "summary.json").unlink()
    assert resume(tmp_path / "run").finished
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == before
    shorter = json.dumps({**before, "steps": 32})  # of the run before it was made longer
    (tmp_path / "run" / "summary.json").write_text(shorter)
    assert resume(tmp_path / "run").finished
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == before


def test_metrics_are_on_the_disk_before_the_checkpoint_that_relies_on_them(tmp_path, monkeypatch):
    done = []
    sync, rename = os.fsync, os.rename

    def note_sync(descriptor):
        done.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def note_rename(self, target):
        done.append(f"rename {target.name}")
        rename(self, target)

    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    run.log({"steps": 1, "updates": 1})
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr("pathlib.Path.rename", note_rename)
    run.save_checkpoint({"w": torch.zeros(1)}, {"steps": 1})
    run.close()
    name = "step-000000000001.ckpt"
    assert done == ["metrics.jsonl", "run", f".{name}.part", f"rename {name}", "checkpoints"]
