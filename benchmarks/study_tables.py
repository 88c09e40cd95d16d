"""Write the tables of docs/results-rooms.md from the packed study.

    python benchmarks/study_tables.py

A table stands between the lines `<!-- table: NAME -->` and `<!-- end of table -->`; the rest of the
page stays as it is.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ssedb.compare import results, statistics
from ssedb.compare.measures import bounds

ROOT = Path(__file__).parent.parent
ARCHIVE = ROOT / "benchmarks" / "log" / "rooms-study.tar.gz"
NOISES = ("none", "random-box", "sticky", "pixel", "noisy-tv")
METHODS = (
    *("db-ensemble", "icm", "rnd", "count", "none", "db"),
    *("disagreement", "lbs", "e3b", "cb", "re3", "lpm"),
)
MOST_SEEDS = 5
PROBED = {
    "noise in the bonus": "bonus_noise_share",
    "noise in the features": "feature_noise_share",
    "correlation with counts": "count_correlation",
    "room named from the features": "room_accuracy",
}
UNTRAINED = ("count", "none")
Runs = Sequence[results.Run]


def read_study() -> list[results.Run]:
    """Read the finished runs that `pack_study.py` has packed, in the order of their seeds."""
    with TemporaryDirectory() as folder:
        shutil.unpack_archive(ARCHIVE, folder)
        runs = [run for run in results.load_runs(Path(folder)) if run.finished]
    return sorted(runs, key=lambda run: run.seed or 0)


def table(corner: str, columns: Sequence[str], rows: dict[str, Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [[corner, *columns], ["---"] * (len(columns) + 1), *([k, *v] for k, v in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(runs: Runs, key: str) -> str:
    """Return the mean of a measure with its 95% interval, or the values of one or two runs."""
    values = [value for run in runs if (value := run.value(key)) is not None]
    if len(values) < 3:
        return ", ".join(f"{value:.3f}" for value in values) or "-"
    estimate = statistics.bootstrap({"": values}, statistics.mean, bounds=bounds(key))
    few = "" if len(values) == MOST_SEEDS else f" ({len(values)})"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]{few}"


def by_method(study: Runs, cell: Callable[[Runs], str], methods: Sequence[str] = METHODS) -> str:
    """Return a table with a row for each method and a column for each noise."""

    def of(method: str, noise: str) -> str:
        return cell([run for run in study if (run.method, run.noise) == (method, noise)])

    return table("", NOISES, {f"`{m}`": [of(m, noise) for noise in NOISES] for m in methods})


def under_alarm(runs: Runs) -> str:
    """Return the part of each run's training with an alarm about the explained variance."""
    parts = [
        sum(a.until - a.since for a in run.alarms if a.metric == "explained_variance")
        / run.summary["steps"]
        for run in runs
    ]
    texts = [f"{part:.2f}" if part else "0" for part in parts]
    if len(set(texts)) == 1:
        return texts[0]
    low, high = (f"{part:.2f}" if part else "0" for part in (min(parts), max(parts)))
    return ", ".join(texts) if len(texts) < 3 else f"{low} to {high}"


def make_tables(study: Runs) -> dict[str, str]:
    """Make every table of the page."""
    boxes = [run for run in study if run.noise == "random-box"]
    trained = [method for method in METHODS if method not in UNTRAINED]
    probed = {
        f"`{method}`": [
            summary([run for run in boxes if run.method == method], key) for key in PROBED.values()
        ]
        for method in trained
    }
    ours = {
        noise: [
            summary([r for r in study if (r.method, r.noise) == ("db-ensemble", noise)], key)
            for key in ("bonus_noise_share", "feature_noise_share", "count_correlation")
        ]
        for noise in NOISES
    }
    return {
        "states": by_method(study, lambda runs: summary(runs, "states_share")),
        "probe": table("under random boxes", [*PROBED], probed),
        "db-ensemble": table(
            "`db-ensemble`",
            ["noise in the bonus", "noise in z", "correlation with counts"],
            ours,
        ),
        "alarms": by_method(study, under_alarm, [*trained, "count"]),
    }


def fill(page: str, tables: dict[str, str]) -> str:
    """Return a page with its tables replaced."""
    for name, text in tables.items():
        begin, end = f"<!-- table: {name} -->", "<!-- end of table -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{end}", re.DOTALL)
        page, found = pattern.subn(lambda _, t=f"{begin}\n\n{text}\n\n{end}": t, page)
        if found != 1:
            raise SystemExit(f"the page has {found} places for the table {name!r}, not one")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results-rooms.md")
    args = parser.parse_args()
    page = args.page.read_text(encoding="utf-8")
    args.page.write_text(fill(page, make_tables(read_study())), encoding="utf-8")


if __name__ == "__main__":
    main()
