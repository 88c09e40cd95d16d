"""A run's folder: its lock, its configuration, its metrics in JSONL and TensorBoard (and W&B), its summary."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.config import TrainConfig
from ssedb.envs.names import bare_id
from ssedb.errors import ConfigError, FolderInUse
from ssedb.runs import checkpoint
from ssedb.runs.processes import check_processes

MAY_CHANGE = ("steps", "device", "engine", "env_workers", "checkpoint_minutes", "wandb")
"""Settings that a resumed run may change: those that make no other run of it."""
ERROR_LOG = "error.log"
"""In a run's folder: the traceback of an error in an environment or a bonus that stopped it."""


class RunFolder:
    """A locked run folder. Importing and opening it needs no torch, so that mistakes show at once."""

    def __init__(self, path: Path, config: TrainConfig, lock: FolderLock) -> None:
        self.path, self.config, self._lock = path, config, lock
        self._metrics: Any = None
        self._writer: Any = None
        self._wandb: Any = None

    @classmethod
    def create(cls, config: TrainConfig) -> RunFolder:
        """A new run; a folder that holds one already is left alone."""
        path = config.out
        check_processes(config)
        _check_wandb(config)
        lock = lock_folder(path, create=True)
        if any((path / name).exists() for name in ("config.toml", "metrics.jsonl", "checkpoints")):
            lock.close()
            raise ConfigError(
                f"{path} already holds a run; go on with `{resume_command(path)}`, or choose another --out"
            )
        return cls(path, config, lock)

    @classmethod
    def reopen(cls, path: Path, **overrides: Any) -> RunFolder:
        """An existing run, to go on with. Overrides may lengthen it or move it, not make it another run."""
        saved = saved_config(path)
        lock = lock_folder(path, create=False)
        try:
            config = dataclasses.replace(saved, **overrides)
            for field in dataclasses.fields(config):
                old, new = getattr(saved, field.name), getattr(config, field.name)
                if old == new or field.name in MAY_CHANGE:
                    continue
                name = field.name
                if name == "bonus_options":
                    name = next(key for key in {**old, **new} if old.get(key) != new.get(key))
                    old, new = old.get(name), new.get(name)
                raise ConfigError(
                    f"{path} is a run with {name}={old}, not {new}; a resumed run keeps its settings "
                    f"(all but {', '.join(MAY_CHANGE)}), so leave it out or start a new run"
                )
            reached = (check_checkpoint(path, config) or {}).get("steps", 0)
            if config.steps < min(saved.steps, reached):
                raise ConfigError(
                    f"steps={config.steps}: {path} is at step {reached:,} already; ask for more"
                )
            check_processes(config)
            _check_wandb(config)
        except ConfigError:
            lock.close()
            raise
        return cls(path, config, lock)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def has_metrics(self) -> bool:
        return (self.path / "metrics.jsonl").exists()

    def start_logging(self, resumed_at: dict[str, int] | None) -> None:
        """Writes the configuration and opens the logs, once the run can really begin.

        After a resume a marker says from where: later lines supersede those past it.
        """
        from torch.utils.tensorboard.writer import SummaryWriter

        self._write("config.toml", self.config.to_toml())
        (self.path / ERROR_LOG).unlink(missing_ok=True)  # of an earlier try
        path = self.path / "metrics.jsonl"
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._metrics = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        if torn:  # killed in the middle of a line
            self._metrics.write("\n")
        if resumed_at is not None:
            self._line({"event": "resume", **resumed_at})
        self._writer = SummaryWriter(
            str(self.path / "tb"), purge_step=resumed_at["steps"] + 1 if resumed_at else None
        )
        if self.config.wandb:
            import wandb

            settings = {
                k: str(v) if isinstance(v, Path) else v
                for k, v in dataclasses.asdict(self.config).items()
            }
            same = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[
                :16
            ]  # a resumed run goes on there too
            self._wandb = wandb.init(
                project="ssedb",
                id=same,
                resume="allow",
                name=self.path.name,
                dir=str(self.path),
                config=settings,
            )

    def rows(self) -> list[dict[str, Any]]:
        """Return the metrics logged so far, as `read_metrics` does."""
        return read_metrics(self.path)

    def log(self, row: dict[str, Any]) -> None:
        """One line of metrics; None stands for what has no value yet."""
        self._line(row)
        numbers = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "steps"}
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, row["steps"])
        if self._wandb is not None:
            self._wandb.log(numbers, step=row["steps"])

    def save_checkpoint(self, state: dict[str, Any], counters: dict[str, int]) -> None:
        about = {
            **counters,
            "env": self.config.env,
            "bonus": self.config.bonus,
            "version": __version__,
        }
        checkpoint.save(self.checkpoints, state, about)

    def write_summary(self, summary: dict[str, Any]) -> None:
        self._write("summary.json", json.dumps(summary, indent=2) + "\n")

    def close(self) -> None:
        if self._lock.closed:
            return
        for log in (self._metrics, self._writer):
            if log is not None:
                log.close()
        if self._wandb is not None:
            self._wandb.finish()
        self._lock.close()

    def _line(self, row: dict[str, Any]) -> None:
        self._metrics.write(json.dumps({"time": round(time.time(), 3), **row}) + "\n")
        self._metrics.flush()

    def _write(self, name: str, text: str) -> None:
        part = self.path / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.rename(self.path / name)


class OtherProcess(RunFolder):
    """The run folder as the processes see it that do not keep it: what they hand in is not written again."""

    def __init__(self) -> None:
        self.path = Path(os.devnull)

    def start_logging(self, resumed_at: dict[str, int] | None) -> None:
        pass

    def rows(self) -> list[dict[str, Any]]:
        return []

    def log(self, row: dict[str, Any]) -> None:
        pass

    def save_checkpoint(self, state: dict[str, Any], counters: dict[str, int]) -> None:
        pass

    def write_summary(self, summary: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def saved_config(path: Path) -> TrainConfig:
    """The configuration of the run in a folder, wherever the folder is now."""
    if not (path / "config.toml").is_file():
        raise ConfigError(f"{path} holds no run (no config.toml); name the folder of a run")
    return TrainConfig.from_toml(path / "config.toml", out=path)


def require_checkpoint(path: Path, config: TrainConfig) -> None:
    """The run must have saved something, and its own."""
    if not check_checkpoint(path, config):
        raise ConfigError(
            f"{path} has no checkpoint yet; let it train on with `{resume_command(path)}`"
        )


def resume_command(path: Path) -> str:
    """Return the command that goes on with a run, ready for a shell."""
    return f"ssedb train --resume {shlex.quote(str(path))}"


def what_is_saved(path: Path) -> str:
    """Say what a run that ended too early has left behind, and how to go on."""
    if not (path / "config.toml").exists():
        return "nothing was saved; the same command begins anew"
    about = checkpoint.about_latest(path / "checkpoints")
    if about is None:
        return f"nothing was saved; `{resume_command(path)}` begins it anew"
    return f"saved at step {about['steps']:,}; go on with: {resume_command(path)}"


def refuse_strangers(out: Path, own: str) -> None:
    """Raise ConfigError if a folder holds files that are not ours: results must not be strewn among them.

    `own` is the file by which a run or a sweep knows its own folder.
    """
    if out.is_dir() and not (out / own).exists():
        others = sorted(
            path.name
            for path in out.iterdir()
            if not path.name.startswith(".") and path.name != ERROR_LOG
        )
        if others:
            raise ConfigError(
                f"{out} holds other files ({others[0]}); choose a new or an empty folder for --out"
            )


def require_writable(path: Path) -> None:
    """Where something is to be written, perhaps in a folder that is made for it."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK):
        raise ConfigError(
            f"cannot write to {path}: no permission for {there}; copy it to a folder you may write to"
        )


def misfit(path: Path, error: Exception) -> ConfigError:
    """What to say where the weights of a run's checkpoint are not those its configuration asks for."""
    reason = str(error).strip().splitlines()[-1].strip()
    return ConfigError(
        f"the checkpoint in {path} does not fit its config.toml: {reason}; put the file back"
    )


def check_checkpoint(path: Path, config: TrainConfig) -> dict[str, Any] | None:
    """What the newest checkpoint says of itself, if there is one; one of another environment than the run's is an error."""
    about = checkpoint.about_latest(path / "checkpoints")
    if about is not None and bare_id(str(about.get("env"))) != bare_id(config.env):
        raise ConfigError(
            f"the checkpoint in {path} is of {about.get('env')} but its config.toml says {config.env}; "
            "put back the folder's own files, or start a new run"
        )
    return about


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """A run's metrics, once each: what a resumed run did again replaces the first try, and torn lines are left out."""
    rows: list[dict[str, Any]] = []
    for line in (Path(path) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row.get("event") == "resume":
            rows = [r for r in rows if r["steps"] <= row["steps"]]
        else:
            rows.append(row)
    return rows


class FolderLock:
    """A folder that this process holds. The kernel lets go of the lock when the process ends, however it ends."""

    def __init__(self, path: Path, file: Any, made: bool) -> None:
        self.path, self._file, self._made = path, file, made

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        """Let go of the folder; take it away if it was made for the lock and holds nothing else."""
        if self._made:
            with suppress(OSError):
                if os.listdir(self.path) == [".lock"]:
                    (self.path / ".lock").unlink()
                    self.path.rmdir()
        self._file.close()


def lock_folder(path: Path, create: bool) -> FolderLock:
    """Take a folder for this process, made if need be; raise FolderInUse if another has it."""
    made = create and not path.exists()
    try:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        file = open(path / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 (held for the life of the run)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {path}: {error.strerror}; choose a folder you may write to"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise FolderInUse(
            f"{path} is in use by process {owner}; wait for it to end, or choose another --out"
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return FolderLock(path, file, made)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder, made if need be, for as long as the block takes."""
    with closing(lock_folder(path, create=True)):
        yield


def _check_wandb(config: TrainConfig) -> None:
    from importlib.util import find_spec

    if config.wandb and find_spec("wandb") is None:
        raise ConfigError(
            "wandb=True: W&B is not installed; run `pip install ssedb[wandb]`, or leave --wandb out"
        )
