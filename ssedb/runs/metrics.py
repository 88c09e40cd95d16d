"""A run's metrics: written as JSONL, for TensorBoard and for W&B, and read again."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssedb.config import TrainConfig
from ssedb.errors import TrainingError, require_installed
from ssedb.reading import Damaged, read_own
from ssedb.runs.files import writing

MAPS = "maps.jsonl"
"""In the folder of a run on Rooms: what `ssedb.runs.maps` logs."""


def require_wandb(config: TrainConfig) -> None:
    """Raise ConfigError if a run is to be logged to W&B and W&B is not installed."""
    if config.wandb:
        require_installed("wandb", extra="wandb", instead="leave --wandb out")


class MetricsLog:
    """Metrics of one run, in its `metrics.jsonl`, its `tb/` and, if asked for, on W&B.

    Args:
        folder: the run's folder.
        config: the run's settings.
        resumed_at: steps and updates of the checkpoint that the run goes on from. A line in the
            JSONL says so: lines after it replace those of later steps before it.
        tell: takes a line if `tb/` cannot be written; the run goes on without it.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        resumed_at: dict[str, int] | None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        path = folder / "metrics.jsonl"
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        if torn:  # killed in the middle of a line
            self._file.write("\n")
        if resumed_at is not None:
            self._line({"event": "resume", **resumed_at})
        purge = resumed_at["steps"] + 1 if resumed_at else None
        self._tensorboard = TensorBoard(folder / "tb", purge, tell)
        self._wandb = _start_wandb(folder, config) if config.wandb else None

    def write(self, row: dict[str, Any]) -> None:
        """Write one row; None stands for what has no value yet."""
        self._line(row)
        numbers = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "steps"}
        self._tensorboard.write(numbers, row["steps"])
        if self._wandb is not None:
            self._wandb.log(numbers, step=row["steps"])

    def close(self) -> None:
        """Flush and close everything."""
        with suppress(OSError):  # of a disk that was full: the run has ended with that error
            self._file.close()
        self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _line(self, row: dict[str, Any]) -> None:
        path = Path(self._file.name)
        if not path.exists():  # what is written to the open file would be lost
            raise TrainingError(f"{path} is gone, deleted while the run trained; resume the run")
        with writing(path):
            self._file.write(json.dumps({"time": round(time.time(), 3), **row}) + "\n")
            self._file.flush()


class TensorBoard:
    """Curves for TensorBoard, which a run can do without: `metrics.jsonl` holds the same."""

    def __init__(self, folder: Path, purge: int | None, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._writer: Any = None
        self._hook = threading.excepthook
        threading.excepthook = self._without_traceback
        with self._in_vain():
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=purge)

    def write(self, numbers: dict[str, Any], steps: int) -> None:
        """Add a point to every curve."""
        with self._in_vain():
            for name, value in numbers.items():
                if self._writer is not None:
                    self._writer.add_scalar(name, value, steps)

    def close(self) -> None:
        """Flush and close."""
        with self._in_vain():
            if self._writer is not None:
                self._writer.close()
        threading.excepthook = self._hook

    @contextmanager
    def _in_vain(self) -> Iterator[None]:
        """Give the curves up if they cannot be written."""
        try:
            yield
        except OSError as error:
            self._writer = None
            why = error.strerror or error
            self._tell(f"cannot write {self._folder}: {why}; the run goes on without its curves")

    def _without_traceback(self, args: Any) -> None:
        """Print the error of a thread, except those of TensorBoard's: the next call raises it."""
        if not type(args.thread).__module__.startswith("tensorboard."):
            self._hook(args)


def _start_wandb(folder: Path, config: TrainConfig) -> Any:
    """Open the run on W&B; one id for one folder lets a resumed run go on there."""
    import wandb

    return wandb.init(
        project="ssedb",
        id=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16],
        resume="allow",
        name=folder.name,
        dir=str(folder),
        config=config.to_dict(),
    )


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """Read the metrics of the run in a folder, one row an update, as `read_log` does."""
    return read_log(Path(path) / "metrics.jsonl").rows


@dataclass
class Log:
    """Rows of a JSONL file of a run, in the order of their steps."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    repeated: int = 0
    """Rows that a resumed run wrote again; the later ones count."""
    damage: str = ""
    """Damage of the file in words; empty if there is none."""
    cut: bool = False
    """Whether nothing else is wrong than that the last line is cut, as by a kill."""


def read_log(path: Path) -> Log:
    """Read the rows that can be read, each an object with the run's steps.

    A line that a kill cut is no damage where the next one is of the resumed run.
    """
    try:
        lines = read_own(path).split(b"\n")
    except Damaged as error:
        return Log(damage=str(error))
    log, broken = Log(), 0
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        row = _row(line)
        if row is None:
            broken = broken or number
            continue
        resumed, before = row.get("event") == "resume", len(log.rows)
        while log.rows and log.rows[-1]["steps"] >= row["steps"] + resumed:
            log.rows.pop()
        again = before - len(log.rows)
        if broken and not (resumed or again or log.damage):
            log.damage = f"line {broken:,} of {path.name} cannot be read"
        broken, log.repeated = 0, log.repeated + again
        if not resumed:
            log.rows.append(row)
    if broken and not log.damage:
        log.cut = broken == len(lines)
        what = "is cut" if log.cut else "cannot be read"
        log.damage = f"line {broken:,} of {path.name}, the last one, {what}"
    return log


def _row(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; None if it is none, or has no steps."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    steps = row.get("steps", -1) if isinstance(row, dict) else -1
    return row if isinstance(steps, (int, float)) and 0 <= steps < 2**63 else None
