"""Health of a run's folder and of the installation.

Reads only, and imports nothing that the folder names.
"""

from __future__ import annotations

import dataclasses
import fcntl
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ssedb import __version__
from ssedb.config import TrainConfig, migrated
from ssedb.errors import PACKAGE_NAMES, ConfigError, one_line
from ssedb.noises import label_of
from ssedb.reading import Damaged, read_json, read_table, require_folder
from ssedb.runs import checkpoint
from ssedb.runs.folder import (
    ERROR_LOG,
    FAILURE,
    OWN_PARTS,
    difference,
    outside_settings,
    refuse_written_links,
    resume_command,
)
from ssedb.runs.metrics import MAPS, read_log
from ssedb.terminal import plural
from ssedb.validate import convert

State = Literal["good", "note", "bad"]
EXTRAS = {
    "report": ("av", "matplotlib", "sklearn", "scipy"),
    "ray": ("ray",),
    "wandb": ("wandb",),
    "sb3": ("stable_baselines3",),
    "torchrl": ("torchrl",),
    "export": ("safetensors",),
}
"""Modules that an extra of ssedb brings."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    text: str


class Checkpoint(NamedTuple):
    """A checkpoint, and the setting in which it differs from config.toml, if there is one."""

    steps: int
    finding: Finding
    other: tuple[str, Any, Any] | None = None


def examine(run: Path) -> list[Finding]:
    """Look at all of a run's folder; the last finding says what a resume would do."""
    require_folder(run, "name the folder of a run")
    if not (run / "config.toml").exists() and (inside := sorted(run.glob("*/config.toml"))):
        raise ConfigError(
            f"{run} holds {plural(len(inside), 'run')}, and is none; "
            f"name one of them, such as {inside[0].parent}"
        )
    config, about_config = _config(run)
    checkpoints = list(_checkpoints(run, config))
    usable = [c.steps for c in checkpoints if c.finding.state == "good"]
    steps = max(usable) if usable else None
    if about_config.state != "bad":
        about_config = _edited(checkpoints) or about_config
    findings = [
        about_config,
        *_lock(run),
        *(c.finding for c in reversed(checkpoints)),
        *_metrics(run, steps, begun=bool(checkpoints) or (run / "summary.json").exists()),
        _summary(run, config),
        *_leftovers(run),
    ]
    if config and about_config.state == "bad":
        return [*findings, Finding("resume", "bad", "refused; correct config.toml as said above")]
    return [*findings, _resume(run, config, steps, checkpoints)]


def _config(run: Path) -> tuple[dict[str, Any], Finding]:
    name = "config.toml"
    try:
        config = migrated(read_table(run / name))
    except Damaged as error:
        return {}, Finding(name, "bad", str(error).removeprefix(f"{name} "))
    if not config and not (run / name).exists():
        return {}, Finding(name, "bad", "missing: the folder holds no run")
    if "env" not in config:
        return {}, Finding(name, "bad", "names no env")
    if wrong := _wrong_setting(config):
        return config, Finding(name, "bad", f"{wrong}; put back the file as the run wrote it")
    about = config | {"noise": label_of(config)}
    shown = ", ".join(f"{key} {about.get(key)}" for key in ("env", "noise", "bonus", "seed"))
    if outside := outside_settings(config):
        whose = " and the ".join(f"{key}'s" for key in outside)
        module = "module" if len(outside) == 1 else "modules"
        return config, Finding(name, "note", f"{shown}; resume imports the {whose} {module}")
    return config, Finding(name, "good", shown)


def _wrong_setting(config: dict[str, Any]) -> str:
    """Return what is wrong with the first setting that no run can have, "" if all are right."""
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    if unknown := sorted(set(config) - known):
        return f"has the unknown setting {unknown[0]!r}, perhaps of another version of ssedb"
    try:
        if outside_settings(config):  # what they name is not imported
            convert(TrainConfig, config)
        else:
            TrainConfig(**config)
    except ConfigError as error:
        return str(error)
    return ""


def _edited(checkpoints: list[Checkpoint]) -> Finding | None:
    """Blame config.toml for a setting in which all checkpoints differ from it."""
    others = [c.other for c in checkpoints]
    if not others or (first := others[0]) is None or any(other != first for other in others):
        return None
    setting, saved, now = first
    text = f"says {setting}={now}, all checkpoints {saved}; set it back"
    return Finding("config.toml", "bad", text)


def _lock(run: Path) -> Iterator[Finding]:
    if not (run / ".lock").is_file():  # a pipe would be waited for
        return
    with suppress(FileNotFoundError), open(run / ".lock", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            yield Finding(".lock", "note", f"in use by process {file.read().strip() or '?'}")


def _checkpoints(run: Path, config: dict[str, Any]) -> Iterator[Checkpoint]:
    """Yield the checkpoints, the newest last."""
    try:
        paths = checkpoint.list_checkpoints(run / "checkpoints")
    except ConfigError as error:
        yield Checkpoint(0, Finding("checkpoints", "bad", str(error)))
        return
    for path in paths:
        name = f"checkpoints/{path.name}"
        try:
            header, data = checkpoint.read_whole(path)
        except (OSError, ValueError) as error:
            yield Checkpoint(0, Finding(name, "bad", checkpoint.why_not(error)))
            continue
        steps = header["steps"]
        if other := difference(header.get("settings"), config):
            text = f"of a run with {other[0]}={other[1]}, and config.toml says {other[2]}"
            yield Checkpoint(steps, Finding(name, "bad", text), other)
        else:
            size = f"{len(data) / 2**20:.1f} MiB"
            yield Checkpoint(steps, Finding(name, "good", f"whole, step {steps:,}, {size}"))


def _metrics(run: Path, steps: int | None, begun: bool) -> Iterator[Finding]:
    name = "metrics.jsonl"
    if not (run / name).exists():
        early = Finding(name, "note", "not there: no iteration has ended")
        yield Finding(name, "bad", "missing") if begun else early
        return
    log = read_log(run / name)
    last = log.rows[-1]["steps"] if log.rows else 0
    text = f"{plural(len(log.rows), 'row')} up to step {last:,}"
    if log.repeated:
        text += f"; resumes replaced {log.repeated:,} more"
    if steps is not None and last > steps:
        text += f"; those after step {steps:,} will be written again"
    lost = steps is not None and last < steps
    if lost:
        text += f", but a checkpoint is of step {steps:,}: the rows between are lost"
    yield Finding(name, "bad" if lost else "good", text)
    for damaged, file in ((log, name), (read_log(run / MAPS), MAPS)):
        if damaged.damage:
            text = f"{damaged.damage}; readers leave out what they cannot read"
            yield Finding(file, "note" if damaged.cut else "bad", text)


def _summary(run: Path, config: dict[str, Any]) -> Finding:
    name = "summary.json"
    if not (run / name).exists():
        return Finding(name, "note", "not there: the run has not ended")
    summary = read_json(run / name)
    if not isinstance(summary.get("steps"), int):
        return Finding(name, "bad", "cannot be read; a resume writes it again")
    if summary.get("finished") and summary["steps"] >= _goal(config):
        return Finding(name, "good", f"finished at step {summary['steps']:,}")
    return Finding(name, "note", f"stopped at step {summary['steps']:,} of {_goal(config):,}")


def _goal(config: dict[str, Any]) -> int:
    steps = config.get("steps")
    return steps if isinstance(steps, int) else 0


def _leftovers(run: Path) -> Iterator[Finding]:
    for name in (ERROR_LOG, FAILURE):
        if (run / name).exists():
            yield Finding(name, "note", "an earlier attempt ended with an error; see there")
    own = {f".{name}.part" for name in OWN_PARTS}
    for part in [*run.glob(".*.part"), *(run / "checkpoints").glob(".*.part")]:
        removed = part.name in own or part.parent != run
        remedy = "a resume removes it" if removed else "delete it unless a command is writing it"
        yield Finding(part.name, "note", f"half-written, of a killed process; {remedy}")


def _resume(
    run: Path,
    config: dict[str, Any],
    steps: int | None,
    checkpoints: list[Checkpoint],
) -> Finding:
    name = "resume"
    if not config:
        return Finding(name, "bad", "impossible without config.toml; put the file back")
    try:
        refuse_written_links(run)
    except ConfigError as error:
        return Finding(name, "bad", f"refused; {error}")
    if checkpoints and steps is None:
        text = "impossible, no checkpoint can be used; mend what is said above, or start a new run"
        return Finding(name, "bad", text)
    if checkpoints and checkpoints[-1].other:
        newest = checkpoints[-1].finding.name
        return Finding(name, "bad", f"refused; take {newest} out of the folder")
    if steps is None and read_log(run / "metrics.jsonl").rows:
        text = "impossible, the checkpoints are lost; put them back, or start a new run"
        return Finding(name, "bad", text)
    if steps is None:
        return Finding(name, "note", f"begins the run anew: {resume_command(run)}")
    if steps < _goal(config):
        return Finding(name, "good", f"goes on from step {steps:,}: {resume_command(run)}")
    summary = read_json(run / "summary.json")
    if summary.get("finished") and summary.get("steps") == steps:
        return Finding(name, "good", "nothing left to do")
    return Finding(name, "good", f"writes the missing summary: {resume_command(run)}")


def examine_installation() -> list[Finding]:
    """Look at Python, torch, devices, ROMs and optional packages."""
    return [
        Finding("ssedb", "good", f"{__version__}, Python {platform.python_version()}"),
        *_torch(),
        _roms(),
        *map(_extra, EXTRAS),
    ]


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except Exception as error:  # a broken installation raises what it likes
        yield Finding("torch", "bad", f"cannot be imported ({one_line(error)})")
        return
    threads = plural(torch.get_num_threads(), "thread")
    yield Finding("torch", "good", f"{torch.__version__}, {threads}")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            yield Finding(f"cuda:{number}", "good", torch.cuda.get_device_name(number))
    else:
        yield Finding("cuda", "note", "torch sees no GPU; runs train on the CPU")


def _roms() -> Finding:
    try:
        from ssedb.envs.names import GAMES, atari_games

        missing = sorted(set(GAMES) - set(atari_games()))
    except Exception as error:
        return Finding("atari", "bad", f"ale-py cannot be used ({one_line(error)})")
    if missing:
        return Finding("atari", "bad", f"no ROM of {', '.join(missing)}; install ale-py anew")
    return Finding("atari", "good", f"{len(atari_games())} games")


def _extra(extra: str) -> Finding:
    missing = [PACKAGE_NAMES.get(m, m) for m in EXTRAS[extra] if find_spec(m) is None]
    if missing:
        text = f"not installed: {', '.join(missing)}; `pip install 'ssedb[{extra}]'` brings it"
        return Finding(extra, "note", text)
    return Finding(extra, "good", "installed")
