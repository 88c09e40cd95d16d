"""A grid on a real Ray: killed workers, a killed driver, and the numbers of runs alone."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from ssedb.runs.loop import train
from ssedb.sweep.grid import read_grid
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
from tests.sweep.grids import Silent

runs = read_grid(Path(sys.argv[1]), Path(sys.argv[2])).runs
run_on_ray(runs, probe=False, display=Silent(runs), address="local", device="cpu", **{small})
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
    outcome = run_on_ray(
        [bad, *runs], probe=False, display=display, address="local", device="cpu", **SMALL
    )
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
