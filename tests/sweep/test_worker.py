"""A worker process of a sweep: a full disk under its log, and a folder that cannot be made."""

import multiprocessing
import sys

import pytest
import torch

from ssedb.sweep import cluster
from ssedb.sweep import execute as module
from ssedb.sweep.grid import read_grid
from ssedb.sweep.worker import _execute_and_tell
from tests.sweep.grids import write_grid


@pytest.fixture
def run(tmp_path):
    return read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[0]


def told(run):
    """What a worker says of a run besides its memory, and whether it takes another."""
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        fit = _execute_and_tell(theirs, run, False, "cpu")
        messages = []
        while ours.poll():
            messages.append(ours.recv())
    return [message for message in messages if message[0] != "memory"], fit


@pytest.mark.parametrize("fails", [False, True])
def test_worker_with_a_full_disk_under_its_log_tells_how_the_run_ended(run, monkeypatch, fails):
    run.folder.mkdir(parents=True)
    (run.folder / "log.txt").symlink_to("/dev/full")

    def execute(*args):
        print("a line that stays in the buffer")
        if fails:
            raise RuntimeError("it broke")
        return True

    monkeypatch.setattr(module, "execute", execute)
    with open(1, "w", closefd=False) as stdout:  # pytest has put another in its place
        monkeypatch.setattr(sys, "stdout", stdout)
        ended = ("failed", "RuntimeError: it broke", True) if fails else ("finished",)
        assert told(run) == ([ended], True)


def test_worker_writes_the_traceback_to_the_log(run, monkeypatch):
    monkeypatch.setattr(module, "execute", lambda *args: 1 / 0)
    assert told(run) == ([("failed", "ZeroDivisionError: division by zero", True)], True)
    log = (run.folder / "log.txt").read_text()
    assert log.startswith("Traceback")
    assert log.endswith("ZeroDivisionError: division by zero\n")


def test_run_whose_folder_is_a_file_is_one_line_and_is_not_retried(run):
    run.folder.parent.mkdir()
    run.folder.write_text("a file")
    error = f"cannot write {run.folder}: File exists; once that is mended, resume the run"
    assert told(run) == ([("failed", error, False)], True)
    threads = torch.get_num_threads()
    assert cluster.run_task(run, False, "cpu", threads, 1, None) == error
