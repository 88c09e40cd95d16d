"""A grid on a real Ray: killed workers, a killed driver, and the numbers of runs alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from ssedb.errors import ConfigError, TrainingError
from ssedb.runs.loop import train
from ssedb.runs.signals import handled
from ssedb.sweep.grid import read_grid
from ssedb.sweep.scheduler import STOPPING, Execution
from tests.helpers import wait_for
from tests.sweep.grids import TOY, TWO, Silent, all_numbers, write_grid

pytest.importorskip("ray")

SMALL = dict(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
DRIVER = """
import sys
from pathlib import Path
from ssedb.sweep.cluster import run_on_ray
from ssedb.runs.loop import train
from ssedb.sweep.grid import read_grid
from ssedb.sweep.scheduler import Execution
from tests.sweep.grids import Silent

runs = read_grid(Path(sys.argv[1]), Path(sys.argv[2])).runs
run_on_ray(runs, Silent(runs), Execution(ray="local", device="cpu"), **{small})
"""


def kill_at_first_checkpoint(folder):
    wait_for(lambda: list(folder.glob("checkpoints/*.ckpt")), pause=0.002)
    os.kill(int((folder / ".lock").read_text()), signal.SIGKILL)


def test_ray_whatever_dies_finishes_every_run_once(tmp_path):
    from ssedb.sweep.cluster import run_on_ray

    grid, out = write_grid(tmp_path, TWO), tmp_path / "ray"
    command = [sys.executable, "-c", DRIVER.replace("{small}", repr(SMALL)), str(grid), str(out)]
    driver = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_for(lambda: len(list(out.glob("*/summary.json"))) >= 1)
    driver.kill()
    driver.wait()
    done = {
        path: path.read_bytes()
        for path in out.glob("*/summary.json")
        if b'"finished": true' in path.read_bytes()
    }
    assert len(done) < 2

    runs = read_grid(grid, out).runs
    bad = read_grid(write_grid(tmp_path, TOY.replace("rooms-small", "Blackjack-v1")), out).runs[0]
    left = [run for run in runs if run.folder / "summary.json" not in done]
    killer = threading.Thread(target=kill_at_first_checkpoint, args=(left[-1].folder,))
    killer.start()
    display = Silent([bad, *runs])
    outcome = run_on_ray([bad, *runs], display, Execution(ray="local", device="cpu"), **SMALL)
    killer.join()

    events = (left[-1].folder / "metrics.jsonl").read_text()
    assert '"event": "resume"' in events  # a worker was killed, and the run went on in another
    assert len(outcome.finished) == 2
    assert list(outcome.failed) == [bad.name]
    assert "needs uint8 images" in outcome.failed[bad.name]
    assert all(
        path.read_bytes() == summary for path, summary in done.items()
    )  # what was finished was left alone

    numbers = all_numbers(out)
    assert len(numbers) == 2
    settings = {"device": "cpu", "threads": 1}  # as on Ray: the last digits depend on it
    for run in read_grid(write_grid(tmp_path, TWO), tmp_path / "alone", settings).runs:
        train(run.config)
    assert numbers == all_numbers(tmp_path / "alone")


CLI = """
import functools, sys
import ray
from ssedb import cli

ray.init = functools.partial(ray.init, **{small})
flags = ["--ray", "local", "--device", "cpu"]
sys.exit(cli.main(["sweep", sys.argv[1], "--out", sys.argv[2], *flags]))
"""


def processes_of(session):
    """The processes of a session that still run."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            stats.append((int(path.parent.name), path.read_text().rpartition(")")[2].split()))
    return [pid for pid, stat in stats if int(stat[3]) == session and stat[0] != "Z"]


@pytest.fixture(autouse=True)
def hangups_end_processes():
    """Tests may run under nohup, which has hangups ignored."""
    with handled(signal.SIG_DFL, signal.SIGHUP):
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ray_on_a_signal_saves_every_run_and_leaves_no_process(tmp_path, number):
    text = TWO.replace("steps = 96", "steps = 960000").replace("minutes = 0", "minutes = 60")
    grid, out = write_grid(tmp_path, text), tmp_path / "ray"
    command = [sys.executable, "-c", CLI.replace("{small}", repr(SMALL)), str(grid), str(out)]
    with open(tmp_path / "said", "w") as said:
        driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_for(lambda: any(path.stat().st_size for path in out.glob("*/metrics.jsonl")))
        if number == signal.SIGHUP:  # as a closing terminal: to all that it started
            os.killpg(driver.pid, number)
        else:
            driver.send_signal(number)
        code = driver.wait(60)
        left = processes_of(driver.pid)
    finally:
        for pid in processes_of(driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait()
    said = (tmp_path / "said").read_text()
    assert code == 130, said
    assert left == [], said
    assert "stopping: every run ends with its update and saves; once more stops at once" in said
    assert "2 of 2 runs not finished; the same command goes on with them" in said
    assert not any(word in said for word in ("Traceback", "SIGTERM", "died", "FAILED")), said
    (summary,) = out.glob("*/summary.json")  # the other run was not begun
    assert not json.loads(summary.read_text())["finished"]
    first, last = sorted(summary.parent.glob("checkpoints/*.ckpt"))
    assert first.name == "step-000000000000.ckpt"
    assert last.name == f"step-{json.loads(summary.read_text())['steps']:012}.ckpt"


class FakeRay:
    """A Ray whose tasks end only by force; it notes what was cancelled."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self, signals):
        self.signals, self.cancelled = iter(signals), []

    def wait(self, references, timeout):
        signal.raise_signal(next(self.signals))
        return [], references

    def get(self, reference, timeout=None):
        return {}

    def cancel(self, reference, force, recursive):
        self.cancelled.append((reference, force))


def test_ray_asked_twice_cancels_by_force(tmp_path):
    from ssedb.sweep.cluster import _watch

    class Quiet(Silent):
        interject = Silent.note

    runs = read_grid(write_grid(tmp_path, TWO), tmp_path / "ray").runs
    ray = FakeRay([signal.SIGTERM, signal.SIGINT])
    waiting = dict(zip("ab", runs, strict=True))
    outcome = _watch(ray, waiting, MagicMock(), display := Quiet(runs), 1)
    assert outcome.stopped
    assert (outcome.finished, outcome.failed) == ([], {})
    assert ray.cancelled == [("a", False), ("b", False), ("a", True), ("b", True)]
    assert display.notes == [STOPPING]


def test_run_that_ray_takes_up_again_is_told_once_each_time(tmp_path):
    from ssedb.sweep.cluster import Board, _watch

    runs, told = read_grid(write_grid(tmp_path, TWO), tmp_path / "ray").runs, Board()
    # Which runs begin between two looks of the driver, and which task has ended then.
    events = iter([("01", ""), ("", ""), ("00", ""), ("", "a"), ("", ""), ("", "b")])
    running = []

    class Ray(FakeRay):
        def wait(self, references, timeout):
            begun, ended = next(events)
            for number in begun:
                told.begin(runs[int(number)].id)
            return [r for r in references if r in ended], references

        def get(self, reference, timeout=None):
            return None if reference in ("a", "b") else told.read()

    class Watched(Silent):
        def update(self, last=False):
            running.append(self.parts()[2])

    waiting = dict(zip("ab", runs, strict=True))
    outcome = _watch(Ray([]), waiting, MagicMock(), display := Watched(runs), 1)
    assert outcome.finished == runs
    again = f"{runs[0].name}: taken up again by Ray"
    assert display.notes == [again, *(f"finished {run.name}" for run in runs)]
    assert running == ["running 2"] * 3 + ["running 1"] * 2 + ["running 0"]


def test_ray_task_that_a_signal_stopped_is_an_error_that_ray_retries(tmp_path, monkeypatch):
    from ssedb.sweep import cluster

    run = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[0]
    monkeypatch.setattr(cluster, "execute", lambda *args: False)
    with pytest.raises(TrainingError, match="a signal that the sweep did not send stopped it"):
        cluster.run_task(run, False, "cpu", torch.get_num_threads(), 1, MagicMock())


NODES = """
import os, signal, sys, threading
from pathlib import Path
from ray.cluster_utils import Cluster
from ssedb.sweep.cluster import run_on_ray
from ssedb.sweep.grid import read_grid
from ssedb.sweep.scheduler import Execution
from tests.helpers import wait_for
from tests.sweep.grids import Silent

out = Path(sys.argv[2])
small = dict(num_cpus=1, object_store_memory=80 * 2**20)
cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
other = cluster.add_node(**small)
runs = read_grid(Path(sys.argv[1]), out).runs

def kill():
    wait_for(lambda: len(list(out.glob("*/checkpoints/*.ckpt"))) > 1, pause=0.002)
    cluster.remove_node(other, allow_graceful=False)
    print("killed", flush=True)

threading.Thread(target=kill, daemon=True).start()
how = Execution(ray=cluster.address, device="cpu", retries=2)
outcome = run_on_ray(runs, Silent(runs), how)
print(len(outcome.finished), outcome.failed, flush=True)
cluster.shutdown()
"""


@pytest.mark.slow
def test_ray_finishes_every_run_once_when_a_node_dies(tmp_path):
    grid, out = write_grid(tmp_path, TWO), tmp_path / "ray"
    done = subprocess.run(
        [sys.executable, "-c", NODES, str(grid), str(out)],
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert {"killed", "2 {}"} <= set(done.stdout.splitlines()), done.stderr  # Ray prints, too
    numbers = all_numbers(out)
    assert len(numbers) == 2
    settings = {"device": "cpu", "threads": 1}  # as on the nodes: the last digits depend on it
    for run in read_grid(grid, tmp_path / "alone", settings).runs:
        train(run.config)
    assert numbers == all_numbers(tmp_path / "alone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_a_driver_of_ray_is_a_ctrl_c(monkeypatch, number):
    import ray

    from ssedb.sweep.cluster import connected

    said = []

    def init(address, **settings):
        said.append(address)
        signal.signal(signal.SIGTERM, lambda *_: said.append("handler of Ray"))

    def shutdown():
        signal.raise_signal(number)  # a closing terminal repeats itself
        said.append("shutdown")

    before = signal.getsignal(number)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", shutdown)
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(said))
    with pytest.raises(KeyboardInterrupt), connected("local"):
        signal.raise_signal(number)
    assert said == ["local", "shutdown"]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_while_ray_starts_here_is_a_ctrl_c_that_ends_ray(monkeypatch, number):
    import ray

    from ssedb.sweep.cluster import connected

    said = []

    def init(**settings):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as Ray does
        signal.raise_signal(number)
        said.append("begun")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: said.append("shutdown"))
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(said))
    with pytest.raises(KeyboardInterrupt), connected("local"):
        pass
    assert said == ([] if number == signal.SIGTERM else ["begun", "shutdown"])


@pytest.mark.parametrize("cause", [None, RuntimeError("ray.exceptions.AuthenticationError: ...")])
def test_authentication_error_points_to_the_docs(monkeypatch, cause):
    import ray

    from ssedb.sweep.cluster import connected

    said = "Failed to connect" if cause else "Authentication is on, and no token was found."

    def refuse(**settings):
        raise ray.exceptions.RayError(said) from cause

    monkeypatch.setattr(ray, "init", refuse)
    with (
        pytest.raises(ConfigError, match=r"needs the cluster's token: docs/sweeps\.md says how$"),
        connected("auto"),
    ):
        pass
