"""Tables of many runs, for people: printed, or as Markdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table as RichTable

from ssedb import terminal
from ssedb.compare.aggregate import (
    Row,
    aggregate_table,
    by_noise,
    condition_table,
    has_few_runs,
    improvement_table,
    left_out,
    noise_name,
    scores_by_task,
    under_noise,
)
from ssedb.compare.measures import MEASURES, NORMALISED, PROBED, about, label, measure
from ssedb.compare.references import LITERATURE, MEASURED, random_score
from ssedb.compare.results import RECOMMENDED, Run, method_order
from ssedb.compare.statistics import AGGREGATES
from ssedb.errors import ConfigError
from ssedb.runs.alarms import LIMITS, Alarm, explain
from ssedb.terminal import plural

SHOWN = (
    "human_score",
    "random_score",
    "score",
    "states_share",
    "rooms_share",
    "area:states_share",
    *PROBED,
)
"""Measures shown unless others are asked for, where any run has them (see `all_zero`)."""
MAIN = ("human_score", "states_share", "score")
"""The first of these that any run has is compared between methods."""
ALL_PAIRS = 5
"""Methods, at most, of a table of who beats whom that has a column for each."""


CERTAIN = "1.00 [1.00, 1.00]"
NEVER_OVERLAP = f"{CERTAIN} says that these runs never overlap, not that others could not."
FEW_RUNS = "No method has 3 runs in a task: the intervals say little."


@dataclass(frozen=True)
class Table:
    """A table for people."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [f"## {markdown(self.title)}", ""]
        for row in (self.columns, ["---"] * len(self.columns), *self.rows):
            lines.append("| " + " | ".join(map(markdown, row)) + " |")
        return "\n".join([*lines, "", *(f"{markdown(note)}\n" for note in self.notes)])

    def show(self, console: Console) -> None:
        """Print the table and its notes."""
        console.print()
        console.print(self.title, style="bold")
        table = RichTable()
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in self.rows:
            table.add_row(*row)
        terminal.print_table(table, console)
        for note in self.notes:
            print(terminal.wrapped(note))


def markdown(text: str) -> str:
    """Return a text that is no more than text in Markdown: no cell, element or escape."""
    return terminal.literal(text).replace("|", "\\|").replace("<", "&lt;")


def choose_measures(runs: Sequence[Run], asked: Sequence[str] = ()) -> tuple[list[str], str]:
    """Return the measures to show and the main one; raise ConfigError for one that no run has."""
    finished = [run for run in runs if run.finished]
    for key in asked:
        if not any(run.value(key) is not None for run in finished):
            raise ConfigError(
                f"measures={key}: no finished run has it; use {', '.join(MEASURES)}, "
                "or a key of metrics.jsonl"
            )
    if asked:
        return list(asked), asked[0]
    known = [k for k in {*SHOWN, *MAIN} if any(run.value(k) is not None for run in finished)]
    telling = [key for key in known if not all_zero(finished, key)] or known
    main = next((key for key in MAIN if key in telling), "score")
    return [key for key in SHOWN if key in telling], main


def all_zero(runs: Iterable[Run], key: str) -> bool:
    """Tell whether a measure is 0 in every run that has it, so that it compares nothing.

    False where less is better: 0 is the best that a bonus can do about noise.
    """
    return measure(key).better != "low" and not any(run.value(key) for run in runs)


def make_tables(runs: Sequence[Run], asked: Sequence[str] = ()) -> list[Table]:
    """Make the tables: runs, each measure, aggregates and comparisons of the main one, left out."""
    shown, main = choose_measures(runs, asked)
    tables = [_overview(runs)]
    tables[0].notes.extend(_left_out_measures(runs, shown) if not asked else [])
    tables += [_measure(runs, key) for key in shown]
    if NORMALISED.keys() & {*shown, main}:
        tables += [_references(runs)]
    for noise, part in by_noise(runs).items():
        tables += [
            _aggregates(part, key, noise)
            for key in aggregated(shown, main)
            if sum("iqm" in row for row in aggregate_table(part, key)) > 1
        ]
        if pairs := improvement_table(part, main):
            tables += [_improvement(part, pairs, main, noise)]
    if any(run.alarms for run in runs):
        tables.append(_alarms(runs))
    if left := left_out(runs):
        rows = [[row["run"], row["status"], row["reason"]] for row in left]
        tables.append(Table("Runs that no average holds", ["run", "status", "why"], rows))
    return tables


def _overview(runs: Sequence[Run]) -> Table:
    rows = []
    for method in method_order(runs):
        own = [run for run in runs if run.method == method]
        done = [run for run in own if run.finished]
        steps = sorted({run.summary["steps"] for run in done})
        lengths = (
            " to ".join(f"{steps[i]:,}" for i in sorted({0, len(steps) - 1})) if steps else "-"
        )
        tasks = len({(run.env, run.noise) for run in own})
        rows.append([method, str(tasks), f"{len(done)} of {len(own)}", lengths])
    few = "(n) where n seeds alone have a value"
    notes = [f"In the tables below: mean [95% interval] over the seeds; {few}."]
    notes += unlike(runs)
    codes = sorted({str(run.provenance["code"]) for run in runs if run.provenance.get("code")})
    if len(codes) > 1:
        versions = f"{len(codes)} versions of the code"
        notes.append(f"The runs were made by {versions}: {'; '.join(codes)}.")
    notes += said_of_logs(runs)
    return Table("Runs", ["method", "tasks", "finished", "steps of a run"], rows, notes)


def _left_out_measures(runs: Sequence[Run], shown: Sequence[str]) -> list[str]:
    """Return a sentence about the usual measures that are left out because they are 0."""
    finished = [run for run in runs if run.finished]
    had = [key for key in SHOWN if any(run.value(key) is not None for run in finished)]
    names = [label(key) for key in had if key not in shown]
    return [f"Left out, because 0 in every finished run: {'; '.join(names)}."] * bool(names)


def _alarms(runs: Sequence[Run]) -> Table:
    """Make a table of alarms: a row for a method, a task and a metric."""
    tasks = list(dict.fromkeys((run.env, run.noise) for run in runs))
    rows: list[list[str]] = []
    notes: dict[str, str] = {}
    for method, task in itertools.product(method_order(runs), tasks):
        own = [run for run in runs if (run.method, run.env, run.noise) == (method, *task)]
        for metric in LIMITS:
            raised = [[a for a in run.alarms if a.metric == metric] for run in own]
            if not any(raised):
                continue
            first = next(run for run, alarms in zip(own, raised, strict=True) if alarms)
            notes.setdefault(metric, explain(metric, first.config))
            some = f"{sum(map(bool, raised))} of {len(own)}"
            parts = [_part(run, alarms) for run, alarms in zip(own, raised, strict=True)]
            low, high = f"{min(parts):.2f}", f"{max(parts):.2f}"
            standing = sum(alarm.stands for alarms in raised for alarm in alarms)
            part = low if low == high else f"{low} to {high}"
            where = f"{task[0]}, {noise_name(task[1])}"
            rows.append([method, where, metric, some, part, str(standing)])
    columns = ["method", "task", "metric", "runs", "part of the training", "at the end"]
    said = [*notes.values(), "Each alarm of each run is in stats.json."]
    return Table("ALARMS: policies that do not follow their bonus", columns, rows, said)


def _part(run: Run, alarms: Sequence[Alarm]) -> float:
    """Return the part of a run's training for which alarms stood, 0 to 1."""
    steps = max((alarm.until for alarm in run.alarms), default=1)
    return sum(a.until - a.since for a in alarms) / max(run.summary.get("steps") or 0, steps)


def unlike(runs: Sequence[Run]) -> list[str]:
    """Return what else than the bonus differs between finished runs, one sentence each."""
    finished = [run for run in runs if run.finished]
    notes = []
    if len({run.summary.get("steps") for run in finished}) > 1:
        notes.append("Finished runs differ in length; they are compared as they ended.")
    methods: dict[str, list[str]] = {}
    for method in method_order(finished):
        for fidelity in {str(r.config.get("fidelity")) for r in finished if r.method == method}:
            methods.setdefault(fidelity, []).append(method)
    if len(methods) > 1:
        named = "; ".join(f"{fidelity}: {', '.join(methods[fidelity])}" for fidelity in methods)
        notes.append(f"Methods differ in more than the bonus, by their fidelity ({named}).")
    return notes


def said_of_logs(runs: Sequence[Run]) -> list[str]:
    """Return what the runs' files made a reader pass over, one sentence each."""
    again = [run.repeated for run in runs if run.repeated]
    damaged = [run for run in runs if run.status == "damaged"]
    resumed = f"{plural(len(again), 'resumed run')} logged {plural(sum(again), 'update')} again"
    first = f"{damaged[0].path.name}: {damaged[0].reason}" if damaged else ""
    return [f"{resumed}; the later ones count."] * bool(again) + [
        f"{plural(len(damaged), 'run')} damaged and in no average, such as {first}."
    ] * bool(damaged)


def _measure(runs: Sequence[Run], key: str) -> Table:
    rows = [row for row in condition_table(runs, key) if row["values"]]
    tasks = list(dict.fromkeys((row["env"], row["noise"]) for row in rows))
    usual = max((row["runs"] for row in rows), default=0)
    cells = {}
    for row in rows:
        few = "" if row["runs"] == usual else f" ({row['runs']})"
        cells[row["method"], row["env"], row["noise"]] = _with_interval(row, "mean") + few
    methods = [m for m in method_order(runs) if any(row["method"] == m for row in rows)]
    envs = {env for env, _ in tasks}
    names = [
        noise_name(noise) if len(envs) == 1 else f"{env}, {noise_name(noise)}"
        for env, noise in tasks
    ]
    body = [[method, *(cells.get((method, *task), "-") for task in tasks)] for method in methods]
    columns = ["method", *names]
    if len(tasks) > max(4, len(methods)):  # many games: down rather than across
        body = [list(row) for row in zip(names, *(row[1:] for row in body), strict=True)]
        columns = ["task", *methods]
    better = {"high": ", more is better", "low": ", less is better", "": ""}[measure(key).better]
    games = [env for env, _ in tasks]
    notes = [f"Reference scores: {about(key, games)}."] if key in NORMALISED else []
    where = f" ({envs.pop()})" if len(envs) == 1 else ""
    return Table(f"{label(key)}{better}{where}, {plural(usual, 'seed')}", columns, body, notes)


def _references(runs: Sequence[Run]) -> Table:
    """Make the table of scores that normalised ones rest on, ours and the literature's."""
    rows = []
    for game, row in reference_rows(runs).items():
        measured = "-"
        if "random" in row:
            error = f"{number(row['standard_error'])} ({row['episodes']})"
            measured = f"{number(row['random'])} ± {error}"
        literature = (row.get(f"{agent}_literature") for agent in ("random", "human"))
        rows.append([game, measured, *map(number, literature)])
    note = "Measured here: mean ± standard error (episodes) of a uniform random agent."
    columns = ["game", "random, measured here", "random, literature", "human, literature"]
    return Table("Reference scores", columns, rows, [note])


def reference_rows(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Return the reference scores of every game of the runs that has any."""
    rows: dict[str, dict[str, float]] = {}
    for game in sorted({run.env for run in runs if random_score(run.env) is not None}):
        rows[game] = {}
        if measured := MEASURED.get(game):
            rows[game] = {"random": measured.mean, "standard_error": measured.standard_error}
            rows[game]["episodes"] = measured.episodes
        if game in LITERATURE:
            rows[game]["random_literature"], rows[game]["human_literature"] = LITERATURE[game]
    return rows


def _with_interval(row: Row, name: str, prefix: str = "") -> str:
    return " ".join(filter(None, value_and_interval(row, name, prefix)))


def value_and_interval(row: Row, name: str, prefix: str = "") -> tuple[str, str]:
    """Return a value of a row and its interval as texts of the same digits; "" for no interval."""
    value, low, high = (row[key] for key in (name, f"{prefix}low", f"{prefix}high"))
    digits = _digits(value, low, high)
    interval = "" if low is None else f"[{number(low, digits)}, {number(high, digits)}]"
    return number(value, digits), interval


def aggregated(shown: Sequence[str], main: str) -> list[str]:
    """Return the measures that are aggregated over tasks: the main one, and normalised scores."""
    return list(dict.fromkeys([main, *(key for key in shown if key in NORMALISED)]))


def _aggregates(runs: Sequence[Run], key: str, noise: str) -> Table:
    rows = {row["method"]: row for row in aggregate_table(runs, key)}
    first = next(iter(rows.values()))
    names = [name for name in AGGREGATES if name in first]
    body = [
        [method, *(_with_interval(rows[method], name, f"{name}_") for name in names)]
        for method in method_order(runs)
        if method in rows
    ]
    tasks = f"{plural(first['tasks'], 'task')} (an environment under a noise)"
    notes = [f"Over {tasks} that every method has."]
    left = {method: row["tasks_left_out"] for method, row in rows.items()}
    missing = [f"{count} of {method}" for method, count in left.items() if count]
    if missing:
        notes.append(f"Left out, because not every method has them: {', '.join(missing)}.")
    columns = ["method", *(name.replace("_", " ") for name in names)]
    title = f"All tasks{under_noise(noise) or ' together'}: {label(key)}"
    return Table(title, columns, body, notes)


def _improvement(runs: Sequence[Run], pairs: Sequence[Row], key: str, noise: str) -> Table:
    """Compare all methods; if they are many, with DB, our bonus and the random agent alone."""
    rows = {(r["first"], r["second"]): r for r in pairs}
    methods = [m for m in method_order(runs) if any(first == m for first, _ in rows)]
    compared = ("db", RECOMMENDED, "none")
    against = [m for m in methods if m.split()[0] in compared][:4] or methods[:1]
    if len(methods) <= ALL_PAIRS:
        against = methods
    body = [
        [method, *(probability(rows.get((method, other))) for other in against)]
        for method in methods
    ]
    note = (
        "Probability that a run of the row is better than one of the column on the same task, "
        "with the 95% interval."
    )
    notes = [note, *[NEVER_OVERLAP] * any(CERTAIN in row for row in body)]
    if len(against) < len(methods):
        left = len(methods) - len(against)
        notes.append(
            f"Columns: {', '.join(against)} only. {plural(left, 'other method')} left out here; "
            "all pairs are in stats.json."
        )
    if has_few_runs(scores_by_task(runs, key)):
        notes.append(FEW_RUNS)
    title = f"Who beats whom{under_noise(noise)}: {label(key)}"
    return Table(title, ["", *against], body, notes)


def probability(row: Row | None) -> str:
    """Return a row of `improvement_table` as text, "-" for None."""
    if row is None:
        return "-"
    value, low, high = (number(row[key], 2) for key in ("probability", "low", "high"))
    return value if row["low"] is None else f"{value} [{low}, {high}]"


def number(value: float | None, digits: int | None = None) -> str:
    """Return a number as text, to about three digits that matter unless given; "-" for None."""
    if value is None:
        return "-"
    return f"{value:z,.{_digits(value) if digits is None else digits}f}"  # z: no -0.000


def _digits(*values: float | None) -> int:
    """Return the digits behind the point that about three digits of the largest value take."""
    size = max(abs(value) for value in values if value is not None)
    return 3 if size <= 1 else 2 if size < 100 else 1 if size < 1000 else 0
