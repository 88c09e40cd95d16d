"""A worker process of a sweep: Ctrl-C at its start, a full disk, a folder that cannot be made."""

import multiprocessing
import os
import signal
import sys
from multiprocessing import resource_tracker
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from ssedb.engine import host
from ssedb.sweep import cluster
from ssedb.sweep import execute as module
from ssedb.sweep import scheduler as scheduler_module
from ssedb.sweep import worker as worker_module
from ssedb.sweep.grid import read_grid
from ssedb.sweep.scheduler import Execution, Scheduler
from ssedb.sweep.worker import _execute_and_tell
from tests.helpers import is_alive, wait_for
from tests.sweep.grids import Silent, write_grid


def masks(pid):
    """Whether a process blocks, and whether it ignores, Ctrl-C."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    bit = 1 << (signal.SIGINT - 1)
    return tuple(bool(int(status[name], 16) & bit) for name in ("SigBlk", "SigIgn"))


def test_worker_ignores_ctrl_c_from_its_first_moment(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs
    tracker = resource_tracker.ResourceTracker()  # it starts with the first worker of a process
    monkeypatch.setattr(resource_tracker, "ensure_running", tracker.ensure_running)
    monkeypatch.setattr(resource_tracker, "getfd", tracker.getfd)
    scheduler = Scheduler(runs, Silent(runs), Execution(device="cpu", jobs=1))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        pid = scheduler._start_worker().process.pid
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
        assert any(masks(pid))
        os.kill(pid, signal.SIGINT)
        wait_for(lambda: not is_alive(pid) or masks(pid) == (False, True), seconds=30)
        assert is_alive(pid)
    finally:
        scheduler.close()
        tracker._stop()


def tell_arguments(pipe, *arguments):
    """Stand in for a worker: send back how it is to work."""
    pipe.send(arguments)


@pytest.mark.parametrize(("jobs", "alone"), [(1, True), (2, False), (None, False)])
def test_worker_is_alone_only_in_a_sweep_of_one_run_at_a_time(tmp_path, monkeypatch, jobs, alone):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs
    monkeypatch.setattr(scheduler_module, "work", tell_arguments)
    how = Execution(device="cpu", jobs=jobs, threads=3)
    scheduler = Scheduler(runs, Silent(runs), how)
    try:
        assert scheduler._start_worker().pipe.recv() == (0, "cpu", 3, alone)
    finally:
        scheduler.close()


@pytest.mark.parametrize(
    ("device", "alone", "asked"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("cpu", False, False),
    ],
)
def test_worker_sleeps_while_it_waits_for_a_gpu_that_others_share(
    monkeypatch, device, alone, asked
):
    asks = []
    monkeypatch.setattr(host, "sleep_while_waiting", lambda: asks.append(True))
    monkeypatch.setattr(worker_module, "end_with_parent", lambda: None)
    monkeypatch.setattr(os, "setpgid", lambda pid, group: None)
    before = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    ours, theirs = multiprocessing.Pipe()
    ours.close()  # no runs
    try:
        worker_module.work(theirs, 0, device, 1, alone)
    finally:
        signal.signal(signal.SIGINT, before[0])
        torch.set_num_threads(before[1])
        theirs.close()
    assert asks == [True] * asked


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
    full = Path("/dev/full")
    monkeypatch.setattr("ssedb.sweep.worker.open", lambda *_, **__: full.open("a"), raising=False)

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


def test_worker_writes_its_log_through_no_link(run, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("of another")
    run.folder.mkdir(parents=True)
    (run.folder / "log.txt").symlink_to(other)
    [(kind, why, _)], _ = told(run)
    assert kind == "failed"
    assert "log.txt is no plain file or folder" in why
    assert other.read_text() == "of another"


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
    assert cluster.run_task(run, False, "cpu", threads, 1, MagicMock()) == error


@pytest.mark.parametrize(("device", "asked"), [("auto", True), ("cpu", False)])
def test_task_of_ray_sleeps_while_it_waits_for_a_gpu(run, monkeypatch, device, asked):
    asks = []
    monkeypatch.setattr(host, "sleep_while_waiting", lambda: asks.append(True))
    monkeypatch.setattr(cluster, "execute", lambda *args: True)
    assert cluster.run_task(run, False, device, torch.get_num_threads(), 0, MagicMock()) is None
    assert asks == [True] * asked
