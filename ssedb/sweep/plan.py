"""The plan of a sweep on disk: which runs are finished, and which code made them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from ssedb import __version__
from ssedb.compare.results import load_run
from ssedb.config import MOST_THREADS
from ssedb.envs.names import rooms_world
from ssedb.reading import read_json
from ssedb.runs.files import cannot_write, make_folder, write_json
from ssedb.runs.folder import PLAN, PROVENANCE
from ssedb.sweep.grid import Grid, Planned, id_in
from ssedb.sweep.worker import cores


def is_finished(run: Planned, probe: bool) -> bool:
    """Tell whether a run is trained, undamaged, and probed if it is to be."""
    return not why_unfinished(run, probe)


def why_unfinished(run: Planned, probe: bool) -> str:
    """Return why a run does not count as finished; nothing if it does."""
    if not is_trained(run):
        return "its summary.json does not say that it came to its end"
    found = load_run(run.folder)
    if found.finished:
        return "it is not probed" if probe and lacks_probe(run) else ""
    return found.reason


def is_trained(run: Planned) -> bool:
    """Tell whether a run's summary says that it came to its end, with the plan's settings."""
    summary = read_json(run.folder / "summary.json", steps=int, finished=bool)
    reached = bool(summary.get("finished")) and summary.get("steps", 0) >= run.config.steps
    return reached and id_in(run.folder, [run]) == run.id


def lacks_probe(run: Planned) -> bool:
    """Tell whether the trained bonus of a run is still to be probed.

    The probe draws noise over pictures. Sticky actions are no such noise, so under them only Rooms
    have something to measure: the correlation with counts.
    """
    if run.config.noise == "sticky" and rooms_world(run.config.env) is None:
        return False
    return read_json(run.folder / "probe.json").get("fresh") is not False


def share_of_cores(grid: Grid, jobs: int | None) -> int:
    """Return the threads of each run if all of a grid are to do, so many at a time."""
    return max(1, cores() // min(jobs or cores(), len(grid.runs)))


def threads_of(root: Path, usual: int) -> int:
    """Return the threads of each run, on whose number the last digits of results depend.

    They are what OMP_NUM_THREADS says, else what the plan in `root` records, else `usual`.
    A resumed sweep so gives each run the threads it would have had without the stop.
    """
    said = os.environ.get("OMP_NUM_THREADS", "")
    recorded = read_json(root / PLAN, threads=int).get("threads", usual)
    return min(max(1, int(said) if said.isdecimal() else recorded), MOST_THREADS)


def write_plan(grid: Grid, root: Path, threads: int) -> None:
    """Write the plan into the sweep's folder: a run that never began is then known as missing."""
    runs = [
        {"id": run.id, "folder": run.folder.name, "config": run.config.to_dict()}
        for run in grid.runs
    ]
    make_folder(root)
    plan = {"name": grid.name, "probe": grid.probe, "threads": threads, "code": code_version()}
    plan["runs"] = runs
    try:
        write_json(root / PLAN, plan)
    except OSError as error:
        raise cannot_write(root, error) from None


def note_provenance(run: Planned) -> None:
    """Write which code works on the run, beside the code that worked on it before."""
    path = run.folder / PROVENANCE
    before = read_json(path, code=str, later=list)
    code = code_version()
    later = [c for c in before.get("later", []) if c != code] + (
        [code] if before.get("code", code) != code else []
    )
    write_json(path, {"id": run.id, "code": before.get("code", code), "later": later})


def made_by_other_code(runs: list[Planned]) -> dict[str, int]:
    """Return how many of the runs were made by which code, other than this."""
    found: dict[str, int] = {}
    for run in runs:
        provenance = read_json(run.folder / PROVENANCE, code=str, later=list)
        first, later = provenance.get("code", code_version()), provenance.get("later", [])
        codes = map(str, [first, *later])
        for code in {*codes} - {code_version()}:
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
