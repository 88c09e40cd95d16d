"""Pack the finished runs of a sweep into an archive that is small enough to keep.

    python benchmarks/pack_study.py runs/rooms benchmarks/log/rooms-study.tar.gz
    tar xzf benchmarks/log/rooms-study.tar.gz -C runs    # and back

The archive holds the sweep's plan, and of each run what `ssedb sweep` needs to count it as finished
and `ssedb stats` to compare it: settings, summary, probe, provenance, and about 60 rows of its
metrics, or one in `--every` updates. Runs that the archive holds already stay in it. Of a run that
is in both, the one with more rows is kept. The same runs give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tarfile
from pathlib import Path

from ssedb.compare.results import load_run
from ssedb.runs.files import write_whole
from ssedb.runs.folder import PLAN, PROVENANCE, saved_config
from ssedb.runs.metrics import read_metrics
from ssedb.sweep.grid import Planned
from ssedb.sweep.plan import lacks_probe
from ssedb.terminal import plural

METRICS = "metrics.jsonl"
WHOLE = ("config.toml", PROVENANCE, "probe.json", "summary.json")
"""Files of a run that are packed as they are."""
ROWS = 60
"""Rows of a run's metrics, about: enough for a smooth curve."""
Files = dict[str, bytes]


def thin(folder: Path, every: int | None) -> bytes:
    """Return rows of the metrics that are so many updates apart, the first and the last too.

    Rows that were thinned before stay.
    """
    rows = read_metrics(folder)
    kept = rows[:1]
    every = every or rows[-1]["updates"] // ROWS
    for row in rows[1:-1]:
        if row["updates"] >= kept[-1]["updates"] + every:
            kept.append(row)
    kept += rows[1:][-1:]
    return "".join(json.dumps(row) + "\n" for row in kept).encode()


def finished_runs(sweep: Path, every: int | None) -> dict[str, Files]:
    """Return the files of each finished run of a sweep, by the name of its folder."""
    probed = json.loads((sweep / PLAN).read_text())["probe"]
    found = {}
    for config in sorted(sweep.glob("*/config.toml")):
        folder = config.parent
        run = Planned("", folder.name, saved_config(folder))
        if load_run(folder).finished and not (probed and lacks_probe(run)):
            files = {n: (folder / n).read_bytes() for n in WHOLE if (folder / n).exists()}
            found[folder.name] = files | {METRICS: thin(folder, every)}
    return found


def read_archive(archive: Path, root: str) -> dict[str, Files]:
    """Return the files of each run of an archive; nothing if there is no archive.

    Raise ValueError if the runs are not in the folder `root`.
    """
    found: dict[str, Files] = {}
    if archive.exists():
        with tarfile.open(archive) as tar:
            for member in tar:
                path = Path(member.name)
                if path.parts[0] != root:
                    raise ValueError(f"{archive} holds a sweep {path.parts[0]}, not {root}")
                if (file := tar.extractfile(member)) and len(path.parts) == 3:
                    found.setdefault(path.parts[1], {})[path.name] = file.read()
    return found


def write_archive(archive: Path, files: Files) -> None:
    """Write files sorted and without clocks or owners; the old archive stays until all is there."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    raw = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    write_whole(archive, raw.getbuffer())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path, help="the folder of the sweep, such as runs/rooms")
    parser.add_argument("archive", type=Path, help="the .tar.gz to make, or to add to")
    parser.add_argument(
        "--every", type=int, help="updates between two rows; by default for 60 rows"
    )
    options = parser.parse_args()
    if not (options.sweep / PLAN).exists():
        parser.error(f"{options.sweep} has no {PLAN}; name the folder of a sweep")
    root = options.sweep.resolve().name
    try:
        before = read_archive(options.archive, root)
    except ValueError as error:
        parser.error(f"{error}; name another archive")
    now = finished_runs(options.sweep, options.every)
    rows = {name: now[name][METRICS].count(b"\n") for name in now}
    less = [
        name for name in now if before.get(name, {}).get(METRICS, b"").count(b"\n") >= rows[name]
    ]
    runs = before | {name: files for name, files in now.items() if name not in less}
    packed = {f"{name}/{file}": data for name in runs for file, data in runs[name].items()}
    packed[PLAN] = (options.sweep / PLAN).read_bytes()
    write_archive(options.archive, {f"{root}/{name}": data for name, data in packed.items()})
    new = sum(name not in before for name in now)
    size = options.archive.stat().st_size / 2**20
    print(f"{options.archive}: {plural(len(runs), 'run')}, {new} new, {size:.1f} MiB")


if __name__ == "__main__":
    main()
