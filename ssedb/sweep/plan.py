"""What is left of a plan to do, and which code made what is there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.compare.results import ORIGIN, PLAN
from ssedb.errors import ConfigError
from ssedb.runs.folder import saved_config
from ssedb.sweep.grid import Grid, Planned, run_id
from ssedb.validate import plain


def is_finished(run: Planned, probe: bool) -> bool:
    """Its summary says so, its settings are the plan's, and it has been probed if it is to be."""
    try:
        summary = json.loads((run.folder / "summary.json").read_text(encoding="utf-8"))
        trained = summary["finished"] and summary["steps"] >= run.config.steps
        return bool(
            trained
            and run_id(saved_config(run.folder)) == run.id
            and (not probe or is_probed(run.folder))
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigError):
        return False


def is_probed(folder: Path) -> bool:
    try:
        return not json.loads((folder / "probe.json").read_text(encoding="utf-8"))["fresh"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_plan(grid: Grid, root: Path) -> None:
    """Leaves the plan in the sweep's folder, so that a run that never began is known to be missing."""
    runs = [
        {"id": run.id, "folder": run.folder.name, "config": plain_config(run)} for run in grid.runs
    ]
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_json(
            root / PLAN,
            {"name": grid.name, "probe": grid.probe, "code": code_version(), "runs": runs},
        )
    except OSError as error:
        raise ConfigError(
            f"cannot write to {root}: {error.strerror}; choose another --out"
        ) from None


def plain_config(run: Planned) -> dict[str, Any]:
    """Return the settings of a run as JSON has them."""
    return plain(dataclasses.asdict(run.config))


def write_json(path: Path, value: Any) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    part.rename(path)


def note_origin(run: Planned) -> None:
    """Writes which code works on the run; a run that other code began keeps that one's name and gets this one's added."""
    path = run.folder / ORIGIN
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    code = code_version()
    later = [c for c in before.get("later", []) if c != code] + (
        [code] if before.get("code", code) != code else []
    )
    write_json(path, {"id": run.id, "code": before.get("code", code), "later": later})


def made_by_other_code(runs: list[Planned]) -> dict[str, int]:
    """How many of the runs were made by which code, other than this."""
    found: dict[str, int] = {}
    for run in runs:
        try:
            origin = json.loads((run.folder / ORIGIN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for code in {origin.get("code"), *origin.get("later", [])} - {code_version(), None}:
            found[code] = found.get(code, 0) + 1
    return found


def strangers(grid: Grid, root: Path) -> list[str]:
    """Runs in the folder that are not in the plan: the grid file was another when they were made."""
    planned = {run.folder.name for run in grid.runs}
    return sorted(
        path.parent.name for path in root.glob("*/config.toml") if path.parent.name not in planned
    )


@cache
def code_version() -> str:
    """Version, commit where there is one, and a hash of the package's own source: any change of the code changes it."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + file.read_bytes())
    source = f"source {digest.hexdigest()[:8]}"
    try:
        command = ["git", "-C", str(package), "log", "-1", "--format=%h", "--", str(package)]
        commit = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = ""
    return " ".join(filter(None, [__version__, commit and f"commit {commit}", source]))
