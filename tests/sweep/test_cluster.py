"""A grid on a real Ray: killed workers, a killed driver, and the numbers of runs alone."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from ssedb.errors import ConfigError
from ssedb.runs.loop import train
from ssedb.sweep.grid import read_grid
from ssedb.sweep.pool import Execution
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
from ssedb.sweep.pool import Execution
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
    for run in read_grid(write_grid(tmp_path, TWO), tmp_path / "alone", {"device": "cpu"}).runs:
        train(run.config)
    assert numbers == all_numbers(tmp_path / "alone")


NODES = """
import os, signal, sys, threading
from pathlib import Path
from ray.cluster_utils import Cluster
from ssedb.sweep.cluster import run_on_ray
from ssedb.sweep.grid import read_grid
from ssedb.sweep.pool import Execution
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
