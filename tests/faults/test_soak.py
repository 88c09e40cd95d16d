"""A long run: memory, file handles and threads stay flat.

`SOAK_MINUTES=10 python -m pytest -m slow -s tests/faults/test_soak.py` prints the numbers.
"""

import json
import os
import statistics
import threading
import time
from pathlib import Path

import pytest

from ssedb.runs.loop import train
from ssedb.runs.progress import Progress
from tests.faults.forks import SMALL
from tests.toy import tiny_config

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))


class Watcher(Progress):
    """Notes what the process holds after each update, and stops the run when the time is over."""

    def __init__(self, minutes):
        self.limit = time.monotonic() + 60 * minutes
        self.rows = []

    def log(self, row):
        status = dict(
            line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines()
        )
        memory = int(status["VmRSS"].split()[0]) / 1024
        threads = int(status["Threads"])
        self.rows.append((memory, len(os.listdir("/proc/self/fd")), threads))
        if time.monotonic() > self.limit:
            threading.Thread(target=os.kill, args=(os.getpid(), 15)).start()  # SIGTERM, once
            self.limit = float("inf")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_soak_memory_handles_and_threads_are_flat(tmp_path):
    watcher = Watcher(MINUTES)
    settings = {**SMALL, "steps": 10**9, "checkpoint_minutes": 0.05, "bonus": "db-ngu"}
    result = train(tiny_config(tmp_path / "run", **settings), watcher)
    third = len(watcher.rows) // 3
    thirds = [watcher.rows[i * third : (i + 1) * third] for i in range(3)]
    medians = [[statistics.median(column) for column in zip(*rows, strict=True)] for rows in thirds]
    names = ("memory_mib", "handles", "threads")
    print(
        json.dumps(
            {
                "minutes": MINUTES,
                "updates": len(watcher.rows),
                "steps": result.steps,
                **{name: [row[i] for row in medians] for i, name in enumerate(names)},
            }
        )
    )
    assert medians[2][0] <= 1.02 * medians[1][0] + 1
    assert medians[2][1] <= medians[0][1] + 1
    assert medians[2][2] <= medians[0][2] + 1
