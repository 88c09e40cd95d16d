"""A run's folder: who may write to it, its settings, what it holds and how to go on with it.

Importing and opening it needs no torch, so that mistakes show at once.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.config import TrainConfig, migrated
from ssedb.engine import distributed
from ssedb.envs.names import bare_id
from ssedb.errors import ConfigError, TrainingError
from ssedb.reading import Damaged, read_json, read_table, require_folder
from ssedb.runs import checkpoint
from ssedb.runs.files import (
    own_copy,
    refuse_links,
    refuse_other_files,
    remove_parts,
    sync_file,
    sync_folder,
    write_json,
    write_whole,
    writing,
)
from ssedb.runs.lock import FolderLock, lock_folder
from ssedb.runs.metrics import MetricsLog, read_metrics, require_wandb
from ssedb.validate import plain

MAY_CHANGE = (
    *("steps", "device", "engine", "deterministic", "env_workers", "threads"),
    *("checkpoint_minutes", "wandb"),
)
"""Settings that a resumed run may change: those that make no other run of it."""
NOT_OF_THE_RUN = ("out", *(name for name in MAY_CHANGE if name != "steps"))
"""Settings that change no result but for the last digits; all others make another run."""
ERROR_LOG = "error.log"
"""In a run's folder: the traceback of an error in an environment or a bonus that stopped it."""
SWEEP_LOG, FAILURE, PROVENANCE = "log.txt", "failure.json", "origin.json"
"""In the folder of a sweep's run: what it printed, how it failed, which code made it."""
PLAN = "plan.json"
"""In a sweep's folder: the runs that it is to make."""
BEFORE_A_RUN = (ERROR_LOG, SWEEP_LOG, FAILURE, PROVENANCE)
"""Files that ssedb may leave in a folder whose run has not begun."""

OF_A_RUN = ("config.toml", "metrics.jsonl", "checkpoints")
"""Any of these tells that a folder holds a run."""
OWN_PARTS = ("config.toml", "summary.json")
"""Files that a run writes beside its checkpoints, whole or not at all."""
APPENDED = ("metrics.jsonl", "maps.jsonl")
"""Files that a run adds lines to; a checkpoint relies on those before it."""
WRITTEN_IN_PLACE = (".lock", *APPENDED, "checkpoints", "tb", "wandb", ERROR_LOG)
"""What a run opens to write; its other files replace those before them."""


class RunFolder:
    """A run's folder, locked for this process.

    Attributes:
        moved: whether the folder was no longer at its place when it was closed.
    """

    def __init__(self, path: Path, config: TrainConfig, lock: FolderLock) -> None:
        self.path = path.absolute()  # an environment may change the working directory
        self.config = config
        self.moved = False
        self._lock = lock
        self._metrics: MetricsLog | None = None
        self._damaged: list[Path] = []  # checkpoints that could not be loaded

    @classmethod
    def create(cls, config: TrainConfig) -> RunFolder:
        """Make the folder of a new run; raise ConfigError if it holds a run or other files."""
        path = config.out
        _require_split(config)
        require_wandb(config)
        refuse_other_files(path, own="config.toml", ignore=(*BEFORE_A_RUN, *OF_A_RUN))
        refuse_written_links(path)
        lock = lock_folder(path, create=True)
        if any((path / name).exists() for name in OF_A_RUN):
            lock.close()
            raise ConfigError(
                f"{path} already holds a run; go on with `{resume_command(path)}`, "
                "or choose another --out"
            )
        return cls(path, config, lock)

    @classmethod
    def reopen(cls, path: Path, **overrides: Any) -> RunFolder:
        """Open an existing run to go on with it.

        Args:
            path: the run's folder.
            overrides: settings to change (MAY_CHANGE); any others must be the run's own.
        """
        saved = saved_config(path)
        refuse_written_links(path)
        lock = lock_folder(path, create=False)
        try:
            config = dataclasses.replace(saved, **overrides)
            _require_same_run(path, saved, config)
            about = checkpoint_header(path, config) or {}
            require_own(path, about, config)
            if not about and read_metrics(path):
                raise ConfigError(
                    f"{path} has metrics and no checkpoint, which each run saves before its first "
                    "metrics; put the folder checkpoints back, or start a new run"
                )
            reached = about.get("steps", 0)
            if config.steps < min(saved.steps, reached):  # by a header: its data may be damaged
                reached = checkpoint.newest_whole(path / "checkpoints").get("steps", 0)
            if config.steps < min(saved.steps, reached):
                raise ConfigError(
                    f"steps={config.steps}: {path} is at step {reached:,} already; ask for more"
                )
            _require_split(config)
            require_wandb(config)
        except BaseException:
            lock.close()
            raise
        return cls(path, config, lock)

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def start_logging(
        self, resumed_at: dict[str, int] | None, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Write the settings and open the logs, once the run can really begin.

        Args:
            resumed_at: steps and updates of the checkpoint that the run goes on from, if any.
            tell: takes a line if a log that the run can do without cannot be written.
        """
        self.remove_leftovers()
        with writing(self.path):
            write_whole(self.path / "config.toml", self.config.to_toml())
            sync_folder(self.path.absolute().parent)
            (self.path / ERROR_LOG).unlink(missing_ok=True)  # of an earlier try
            for name in APPENDED:
                own_copy(self.path / name)
            self._metrics = MetricsLog(self.path, self.config, resumed_at, tell)

    def remove_leftovers(self) -> None:
        """Remove files that a killed process has begun to write."""
        remove_parts(self.path, *OWN_PARTS)
        remove_parts(self.checkpoints, "step-*.ckpt")

    def is_summarized(self, steps: int) -> bool:
        """Tell whether the run has written that it is finished at that step."""
        summary = read_json(self.path / "summary.json", steps=int, finished=bool)
        return bool(summary.get("finished")) and summary.get("steps") == steps

    def log(self, row: dict[str, Any]) -> None:
        """Log one row of metrics; None stands for what has no value yet."""
        assert self._metrics is not None  # start_logging comes first
        self._require_folder()
        self._metrics.write(row)

    def load_checkpoint(
        self, tell: Callable[[str], None]
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return state and header of the newest whole checkpoint; None if there is none.

        Args:
            tell: takes a line for each newer checkpoint that is damaged; the next save removes it.
        """
        return checkpoint.load_latest(self.checkpoints, tell=tell, damaged=self._damaged)

    def save_checkpoint(self, state: dict[str, Any], counters: dict[str, int]) -> None:
        """Save the state of the training with its counters of steps and updates.

        What was logged before it is flushed to the disk first: a power cut must not leave a
        checkpoint without the metrics that led to it.
        """
        self._require_folder()
        with writing(self.path):
            self.checkpoints.mkdir(exist_ok=True)  # without parents: a deleted run stays deleted
            for name in APPENDED:
                sync_file(self.path / name)
            sync_folder(self.path)
            while self._damaged:  # each resume would try them first
                self._damaged.pop().unlink(missing_ok=True)
        about = {"env": self.config.env, "bonus": self.config.bonus, "version": __version__}
        settings = identity(self.config)
        try:
            checkpoint.save(self.checkpoints, state, {**counters, **about, "settings": settings})
        except TrainingError:
            self._require_folder()  # it may have been moved just now
            raise

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write how the run stands at its end."""
        self._require_folder()
        with writing(self.path / "summary.json"):
            write_json(self.path / "summary.json", summary)

    def in_place(self) -> bool:
        """Tell whether the folder is where it was; if it was moved, another run may be there."""
        return self._lock.holds

    def _require_folder(self) -> None:
        """Raise TrainingError if the folder was moved."""
        if not self.in_place():
            raise TrainingError(
                f"{self.path} is gone, moved or deleted while the run trained; "
                "resume the run where it is now"
            )

    def close(self) -> None:
        """Close the logs and release the folder."""
        if self._lock.closed:
            return
        self.moved = not self.in_place()
        if self._metrics is not None:
            self._metrics.close()
        self._lock.close()


class OtherProcess(RunFolder):
    """Run folder of ranks above 0, which write nothing; rank 0 writes for all."""

    def __init__(self) -> None:
        self.path = Path(os.devnull)

    def start_logging(
        self, resumed_at: dict[str, int] | None, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Write nothing."""

    def log(self, row: dict[str, Any]) -> None:
        """Write nothing."""

    def save_checkpoint(self, state: dict[str, Any], counters: dict[str, int]) -> None:
        """Write nothing."""

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write nothing."""

    def in_place(self) -> bool:
        """Tell that there is no folder."""
        return False

    def close(self) -> None:
        """Release nothing."""


def refuse_written_links(path: Path) -> None:
    """Raise ConfigError if a run would write through a link in its folder."""
    refuse_links(path, *WRITTEN_IN_PLACE)


def _require_split(config: TrainConfig) -> None:
    """Raise ConfigError if a run does not split over the processes that torchrun has started."""
    count = distributed.size()
    if count == 1:
        return
    for name in ("num_envs", "minibatch_envs"):
        number = getattr(config, name)
        if number % count:
            raise ConfigError(
                f"{name}={number} does not split over {count} processes; use a multiple of {count}"
            )
    if config.engine == "fast":
        raise ConfigError(
            "engine=fast: CUDA graphs are for one process; leave --engine out with several"
        )
    if ":" in config.device:
        raise ConfigError(
            f"device={config.device}: several processes take a GPU each; use --device cuda"
        )


def _require_same_run(path: Path, saved: TrainConfig, config: TrainConfig) -> None:
    """Raise ConfigError if settings differ that make another run."""
    for field in dataclasses.fields(config):
        name = field.name
        old, new = getattr(saved, name), getattr(config, name)
        if old == new or field.name in MAY_CHANGE:
            continue
        if name == "bonus_options":
            name = next(key for key in {**old, **new} if old.get(key) != new.get(key))
            old, new = old.get(name), new.get(name)
        raise ConfigError(
            f"{path} is a run with {name}={old}, not {new}; a resumed run keeps its settings "
            f"(all but {', '.join(MAY_CHANGE)}), so leave it out or start a new run"
        )


def saved_config(path: Path) -> TrainConfig:
    """Return the settings of the run in a folder, wherever the folder is now."""
    require_folder(path, "name the folder of a run")
    if not (path / "config.toml").is_file():
        raise ConfigError(f"{path} holds no run (no config.toml); name the folder of a run")
    return TrainConfig.from_toml(path / "config.toml", out=path)


def checkpoint_header(path: Path, config: TrainConfig) -> dict[str, Any] | None:
    """Return the header of the newest checkpoint; None if there is none.

    Raises:
        ConfigError: the checkpoint is of another environment than `config`.
    """
    about = checkpoint.about_latest(path / "checkpoints")
    if about is not None and bare_id(str(about.get("env"))) != bare_id(config.env):
        raise ConfigError(
            f"the checkpoint in {path} is of {about.get('env')} but its config.toml says "
            f"{config.env}; put back the folder's own files, or start a new run"
        )
    return about


def identity(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that make a run what it is, as JSON has them: all but its length."""
    settings = plain(dataclasses.asdict(config))
    return {key: settings[key] for key in settings if key not in ("steps", *NOT_OF_THE_RUN)}


def require_own(path: Path, about: dict[str, Any], config: TrainConfig) -> None:
    """Raise ConfigError if a checkpoint's header `about` tells other settings than the run's.

    An older version wrote no settings into the header.
    """
    if other := difference(about.get("settings"), identity(config)):
        raise ConfigError(
            f"the checkpoint in {path} is of a run with {other[0]}={other[1]}, and its config.toml "
            f"says {other[2]}; put back the folder's own files, or start a new run"
        )


def difference(settings: Any, own: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Return name and both values of a setting in which a checkpoint's differ from the run's own.

    What only one of the two has is of another version of ssedb, and does not count.
    """
    for name, saved in migrated(settings if isinstance(settings, dict) else {}).items():
        new = own.get(name, saved)
        if name == "env":
            saved, new = bare_id(str(saved)), bare_id(str(new))
        if saved == new:
            continue
        if isinstance(saved, dict) and isinstance(new, dict):
            name = next(key for key in {**saved, **new} if saved.get(key) != new.get(key))
            saved, new = saved.get(name), new.get(name)
        return name, saved, new
    return None


def require_checkpoint(path: Path, config: TrainConfig) -> None:
    """Raise ConfigError unless the run has saved a checkpoint, and its own."""
    if not checkpoint_header(path, config):
        raise ConfigError(
            f"{path} has no checkpoint yet; let it train on with `{resume_command(path)}`"
        )


def resume_command(path: Path) -> str:
    """Return the command that goes on with a run, ready for a shell."""
    where = os.environ.get("PYTHONPATH", "")
    try:
        config = read_table(path / "config.toml")
    except Damaged:
        config = {}
    python = f"PYTHONPATH={shlex.quote(where)} " if where and outside_settings(config) else ""
    return f"{python}ssedb train --resume {shlex.quote(str(path))}"


def outside_settings(config: Mapping[str, Any]) -> list[str]:
    """Return the settings of a run that name a module from outside, as `package.module:Class`."""
    return [key for key in ("env", "noise", "bonus") if ":" in str(config.get(key))]


def what_is_saved(path: Path, error: TrainingError | None = None) -> str:
    """Say what a run that ended too early, perhaps by an error, has left behind; how to go on."""
    if not (path / "config.toml").exists():
        return f"nothing is saved in {path}; the same command begins anew"
    try:
        about = checkpoint.about_latest(path / "checkpoints")
    except ConfigError as unreadable:  # raised, it would hide the error that ended the run
        return str(unreadable)
    if about is None:
        return f"nothing was saved; `{resume_command(path)}` begins it anew"
    first = "" if error is None or error.may_pass else "mend the cause, then "
    return f"saved at step {about['steps']:,}; {first}go on with: {resume_command(path)}"
