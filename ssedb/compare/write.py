"""The comparison of many runs on disk: tables as Markdown, numbers as JSON, figures."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.compare import aggregate
from ssedb.compare.measures import about
from ssedb.compare.results import Run
from ssedb.compare.tables import Table, aggregated, choose_measures, markdown, reference_rows
from ssedb.errors import ConfigError
from ssedb.runs.files import make_folder, write_json, write_whole


def write_stats(
    runs: Sequence[Run],
    tables: Sequence[Table],
    out: Path,
    title: str,
    *,
    measures: Sequence[str] = (),
    figures: bool = True,
) -> tuple[list[str], list[str]]:
    """Write `tables.md`, `stats.json` and `figures/` into a folder.

    Args:
        runs: what is compared.
        tables: their tables.
        out: the folder, made if need be.
        title: the heading of `tables.md`.
        measures: the measures asked for; the usual ones unless given.
        figures: whether to draw.

    Returns:
        The names of the files, and what could not be written with the reason.
    """
    text = "\n".join([f"# {markdown(title)}", "", *(table.markdown() for table in tables)])
    data = as_data(runs, measures)
    make_folder(out)
    if (out / "tables.md").exists() and not (out / "stats.json").exists():
        raise ConfigError(f"{out / 'tables.md'} was not written by ssedb; choose another --out")
    write_json(out / "stats.json", data)  # first: it tells that the tables are ours
    write_whole(out / "tables.md", text)
    made = ["tables.md", "stats.json"]
    if not figures:
        return made, []
    if find_spec("matplotlib") is None:
        return made, ["no figures: matplotlib is not installed; run `pip install 'ssedb[report]'`"]
    from ssedb.compare.figures import write_figures

    drawn = write_figures(runs, out / "figures", *choose_measures(runs, measures))
    return [*made, *(f"figures/{path.name}" for path in drawn)], []


def as_data(runs: Sequence[Run], asked: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything that the tables hold, and more, for programs."""
    shown, main = choose_measures(runs, asked)
    return {
        "version": __version__,
        "main": main,
        "runs": aggregate.run_table(runs),
        "conditions": {key: aggregate.condition_table(runs, key) for key in shown},
        "aggregates": aggregate.aggregate_table(runs, main),
        "improvement": aggregate.improvement_table(runs, main),
        "by_noise": {
            noise: {
                "aggregates": [
                    row
                    for key in aggregated(shown, main)
                    for row in aggregate.aggregate_table(part, key)
                ],
                "improvement": aggregate.improvement_table(part, main),
            }
            for noise, part in aggregate.by_noise(runs).items()
            if noise
        },
        "efficiency": aggregate.efficiency_table(runs, main),
        "alarms": aggregate.alarm_table(runs),
        "left_out": aggregate.left_out(runs),
        "references": {
            "about": about("human_score", reference_rows(runs)),
            "games": reference_rows(runs),
        },
    }
