"""One run of a plan, from wherever it stands to its end, for workers here and for Ray alike."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from ssedb.errors import ConfigError, FolderInUse, TrainingError, one_line
from ssedb.runs.files import write_json
from ssedb.runs.folder import FAILURE, MAY_CHANGE, RunFolder
from ssedb.runs.progress import Progress
from ssedb.sweep.grid import Planned, id_in
from ssedb.sweep.plan import (
    is_finished,
    is_trained,
    lacks_probe,
    note_provenance,
    why_unfinished,
)

WAIT_FOR_FOLDER = 120.0
"""Seconds to wait for the run's folder: a process whose driver has died ends by itself."""


class Steps(Progress):
    """Progress that tells of steps, at most once a second, and of alarms: ("steps", 96)."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        self._tell, self._last = tell, float("-inf")

    def start(self, steps: int, config: Any) -> None:
        """Tell the first step."""
        self._tell("steps", steps)

    def note(self, text: str) -> None:
        """Tell of an alarm about the policy."""
        if text.startswith("ALARM"):
            self._tell("alarm", text)

    def log(self, row: dict[str, Any]) -> None:
        """Tell the step of a row."""
        if time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            self._tell("steps", row["steps"])


def execute(run: Planned, probe: bool, device: str, progress: Progress) -> bool:
    """Train a run to its end and, if asked to, probe it if it can be probed.

    Returns:
        Whether the run is finished; False if a signal stopped it.

    Raises:
        TrainingError: the run has ended and still does not count as finished.
    """
    if is_finished(run, probe):
        return True
    run.folder.mkdir(parents=True, exist_ok=True)
    if not is_trained(run):
        from ssedb.runs.loop import train_in

        folder = _open(run, device)
        if folder is not None:
            note_provenance(run)
            if not train_in(folder, progress).finished:
                return False
    if probe and lacks_probe(run):
        from ssedb.analysis.probe import probe_run

        probe_run(run.folder, device=device)
    (run.folder / FAILURE).unlink(missing_ok=True)
    if why := why_unfinished(run, probe):
        raise TrainingError(f"it ran and is not finished: {why}; mend that, or move it away")
    return True


def _open(run: Planned, device: str) -> RunFolder | None:
    """Open the run's folder, to begin or go on; return None if another process has finished it."""
    limit = time.monotonic() + WAIT_FOR_FOLDER
    while True:
        try:
            if not (run.folder / "config.toml").exists():
                return RunFolder.create(dataclasses.replace(run.config, device=device))
            if id_in(run.folder, [run]) != run.id:
                raise ConfigError(
                    f"{run.folder} holds a run of other settings, or a damaged one; move it away"
                )
            # Engine and threads stay those that the run began with, whatever auto is by now.
            kept = ("engine", "threads")
            changes = {name: getattr(run.config, name) for name in MAY_CHANGE if name not in kept}
            changes["device"] = device
            folder = RunFolder.reopen(run.folder, **changes)
        except FolderInUse:
            if time.monotonic() > limit:
                raise
            time.sleep(1)
            continue
        if is_trained(run):
            folder.close()
            return None
        return folder


def write_failure(run: Planned, error: str, attempts: int) -> None:
    """Write into the run's folder why it is not finished."""
    with contextlib.suppress(OSError):
        run.folder.mkdir(parents=True, exist_ok=True)
        write_json(
            run.folder / FAILURE,
            {"error": error, "attempts": attempts, "config": run.config.to_dict()},
        )


def describe(error: BaseException) -> str:
    """Return an error as one line."""
    return (
        " ".join(str(error).split())
        if isinstance(error, (TrainingError, ConfigError))
        else one_line(error)
    )


def may_succeed_on_retry(error: BaseException) -> bool:
    """Tell whether a retry may succeed: not for bad settings; a TrainingError knows."""
    return (
        error.may_pass if isinstance(error, TrainingError) else not isinstance(error, ConfigError)
    )
