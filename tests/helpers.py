"""Helpers that tests of several folders share: processes, what a run logged, run folders."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import Progress


def run_ssedb(*args: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; `settings` are those of subprocess.run."""
    command = [sys.executable, "-m", "ssedb", *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, **settings
    )


class Notes(Progress):
    """Progress that keeps the lines it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def wait_for(condition: Callable[[], Any], seconds: float = 120, pause: float = 0.05) -> None:
    """Wait until a condition is met; fail if it takes too long."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it took too long"
        time.sleep(pause)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def without_clocks(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of metrics without what a clock gave."""
    return [{k: v for k, v in row.items() if k not in ("time", "sps")} for row in rows]


def logged_numbers(folder: Path) -> list[dict[str, Any]]:
    """Return what a run logged, without what a clock gave."""
    return without_clocks(read_metrics(folder))


def make_run(
    folder: Path,
    *,
    states: float = 0.5,
    score: float | None = None,
    steps: int = 256,
    finished: bool = True,
    probe: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a run folder as the trainer leaves it, without the training."""
    from tests.toy import tiny_config  # imports torch, which processes of a sweep's tests need not

    config = tiny_config(folder, env=changes.pop("env", "rooms-small"), steps=256, **changes)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.to_toml())
    rows = [
        {"steps": at, "states_share": states * at / steps, "score": score}
        for at in range(64, steps + 1, 64)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"steps": steps, "finished": finished, "score": score, "last": rows[-1]}
    (folder / "summary.json").write_text(json.dumps(summary))
    if probe is not None:
        (folder / "probe.json").write_text(json.dumps(probe))
    return folder


def log_sick_policy(folder: Path) -> None:
    """Give a run folder metrics in which explained variance stays at -0.5."""
    rows = [{"steps": 64 * i, "explained_variance": -0.5, "entropy": 1.0} for i in range(1, 101)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
