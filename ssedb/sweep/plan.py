"""The plan of a sweep on disk: which runs are finished, and which code made them."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.errors import ConfigError
from ssedb.reading import read_json
from ssedb.runs.files import cannot_write, make_folder, write_json
from ssedb.runs.folder import PLAN, PROVENANCE, saved_config
from ssedb.sweep.grid import Grid, Planned, run_id
from ssedb.validate import plain


def is_finished(run: Planned, probe: bool) -> bool:
    """Tell whether a run is trained, with the plan's settings, and probed if it is to be."""
    summary = read_json(run.folder / "summary.json")
    if not summary.get("finished") or summary.get("steps", 0) < run.config.steps:
        return False
    try:
        same = run_id(saved_config(run.folder)) == run.id
    except ConfigError:
        return False
    return same and (not probe or is_probed(run.folder))


def is_probed(folder: Path) -> bool:
    """Tell whether the trained bonus of a run has been probed."""
    return read_json(folder / "probe.json").get("fresh") is False


def write_plan(grid: Grid, root: Path) -> None:
    """Write the plan into the sweep's folder: a run that never began is then known as missing."""
    runs = [
        {"id": run.id, "folder": run.folder.name, "config": plain_config(run)} for run in grid.runs
    ]
    make_folder(root)
    plan = {"name": grid.name, "probe": grid.probe, "code": code_version(), "runs": runs}
    try:
        write_json(root / PLAN, plan)
    except OSError as error:
        raise cannot_write(root, error) from None


def plain_config(run: Planned) -> dict[str, Any]:
    """Return the settings of a run as JSON has them."""
    return plain(dataclasses.asdict(run.config))


def note_provenance(run: Planned) -> None:
    """Write which code works on the run, beside the code that worked on it before."""
    path = run.folder / PROVENANCE
    before = read_json(path)
    code = code_version()
    later = [c for c in before.get("later", []) if c != code] + (
        [code] if before.get("code", code) != code else []
    )
    write_json(path, {"id": run.id, "code": before.get("code", code), "later": later})


def made_by_other_code(runs: list[Planned]) -> dict[str, int]:
    """Return how many of the runs were made by which code, other than this."""
    found: dict[str, int] = {}
    for run in runs:
        origin = read_json(run.folder / PROVENANCE)
        for code in {origin.get("code"), *origin.get("later", [])} - {code_version(), None}:
            found[code] = found.get(code, 0) + 1
    return found


def unplanned_runs(grid: Grid, root: Path) -> list[str]:
    """Return runs in the folder that are not in the plan: the grid file was another then."""
    planned = {run.folder.name for run in grid.runs}
    return sorted(
        path.parent.name for path in root.glob("*/config.toml") if path.parent.name not in planned
    )


@cache
def code_version() -> str:
    """Return the version, the commit where there is one, and a hash of the package's source."""
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
