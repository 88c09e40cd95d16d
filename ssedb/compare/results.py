"""Run folders as tables: which runs there are, how each ended, what it measured. Needs no torch.

runs = load_runs(Path("runs/quick"))
rows = run_table(runs)                        # one row a run, unfinished and failed ones included
rows = condition_table(runs, "states_share")  # one row an (env, noise, method): mean, 95% interval, who was left out
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ssedb.compare import references, statistics
from ssedb.compare.references import human_normalised, random_normalised
from ssedb.config import migrated
from ssedb.envs.names import env_label
from ssedb.errors import ConfigError
from ssedb.runs.alarms import LIMITS, Alarm, Watch
from ssedb.runs.folder import MAY_CHANGE, read_metrics

Status = Literal["finished", "unfinished", "failed", "missing", "damaged", "duplicate"]
Row = dict[str, Any]

PLAN, FAILURE, ORIGIN = "plan.json", "failure.json", "origin.json"
"""What a sweep leaves: in its folder the runs it is to make, in a run's folder how it failed and which code made it."""

NOT_OF_THE_RUN = ("out", *(name for name in MAY_CHANGE if name != "steps"))
"""Settings that change no result (but for the last digits, on another device); all others make another run."""
NOT_A_METHOD = {"env", "env_kwargs", "noise", "bonus", "seed", "steps", *NOT_OF_THE_RUN}
"""Settings that do not make another method."""


@dataclass(frozen=True)
class Measure:
    """How a figure of a run is called and read."""

    label: str
    better: Literal["high", "low", ""] = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    goal: float | None = None
    """What counts as solved, for the optimality gap."""


SHARE = (0.0, 1.0)

NORMALISED: dict[str, Callable[[str, float], float | None]] = {
    "human_score": human_normalised,
    "human_score_literature": partial(human_normalised, literature=True),
    "random_score": random_normalised,
}
"""Measures that scale a game's score by reference scores (ssedb.compare.references)."""


MEASURES: dict[str, Measure] = {
    "human_score": Measure("human-normalised score", "high", goal=1.0),
    "human_score_literature": Measure(
        "human-normalised score with the literature's random agent", "high", goal=1.0
    ),
    "random_score": Measure("score above a random agent's, in its own scores", "high"),
    "score": Measure("score, last 100 episodes", "high"),
    "score_best": Measure("best score of an episode", "high"),
    "states_share": Measure("share of states seen", "high", SHARE, 1.0),
    "rooms_share": Measure("share of rooms seen", "high", SHARE, 1.0),
    "visit_entropy": Measure("entropy of visits (nats)", "high"),
    "area:states_share": Measure("states seen, mean along training", "high", SHARE, 1.0),
    "area:score": Measure("score, mean along training", "high"),
    "bonus_noise_share": Measure("noise in the bonus", "low", SHARE),
    "feature_noise_share": Measure("noise in the features", "low", SHARE),
    "count_correlation": Measure("correlation with counts", "high", (-1.0, 1.0)),
    "room_accuracy": Measure("room named from the features", "high", SHARE),
    "place_explained": Measure("place explained by the features", "high", SHARE),
    "noise_explained": Measure("noise explained by the features", "low", SHARE),
    "bonus_raw": Measure("bonus, as paid before normalisation"),
    "entropy": Measure("entropy of the policy (nats)"),
    "sps": Measure("steps per second"),
}
"""What the tables know how to read; any other key of metrics.jsonl works too."""

PROBED = (
    "bonus_noise_share",
    "feature_noise_share",
    "count_correlation",
    "room_accuracy",
    "place_explained",
    "noise_explained",
)


@dataclass(frozen=True)
class Run:
    """One run folder, or one that a sweep was to make."""

    path: Path
    config: Mapping[str, Any]
    """As config.toml has it; empty where it cannot be read."""
    status: Status
    reason: str = ""
    """Why it is not finished."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    probe: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    method: str = "?"
    """The bonus, and the settings that tell it from another run of the same bonus."""

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def env(self) -> str:
        return env_label(str(self.config.get("env", "?")), self.config.get("env_kwargs", {}))

    @property
    def noise(self) -> str:
        return str(self.config.get("noise", "?"))

    @property
    def seed(self) -> int | None:
        return self.config.get("seed")

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every figure along training, one array a key; NaN where a line has none. Empty without a metrics.jsonl."""
        try:
            rows = read_metrics(self.path)
        except (OSError, UnicodeDecodeError):
            return {}
        keys = dict.fromkeys(
            key for row in rows for key, value in row.items() if isinstance(value, (int, float))
        )
        none = math.nan
        return {
            key: np.array([none if row.get(key) is None else row[key] for row in rows], float)
            for key in keys
        }

    @cached_property
    def alarms(self) -> list[Alarm]:
        """Alarms about the run's policy, from its metrics, so that an older run has them too."""
        names = ("steps", *LIMITS)
        if not all(name in self.metrics for name in names):
            return []
        rows = zip(*(self.metrics[name].tolist() for name in names), strict=True)
        return Watch(dict(zip(names, row, strict=True)) for row in rows).alarms

    def curve(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, values) of one figure; empty where the run has none. Knows the normalised scores too."""
        scale = NORMALISED.get(key)
        source = "score" if scale else key
        if source not in self.metrics:
            return np.zeros(0), np.zeros(0)
        values = self.metrics[source]
        if scale:
            values = np.array(
                [math.nan if (v := scale(self.env, float(s))) is None else v for s in values]
            )
        return self.metrics["steps"], values

    def value(self, key: str) -> float | None:
        """A figure at the end of the run, from its probe or last update; `area:KEY` is a curve's mean along training."""
        if key.startswith("area:"):
            return _number(statistics.area(*self.curve(key.removeprefix("area:"))))
        if key in NORMALISED:
            score = self.value("score")
            return None if score is None else NORMALISED[key](self.env, score)
        for place in (
            self.probe if key in PROBED else {},
            self.summary.get("last") or {},
            self.summary,
        ):
            if key in place:
                return _number(place[key])
        return None


def load_runs(*folders: Path) -> list[Run]:
    """Every run in or below the folders, in a fixed order, and those that a sweep there planned and never began."""
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"there is no folder {folder}; name one that holds runs")
        for place, inside, files in os.walk(folder):
            path = Path(place)
            if "config.toml" in files or FAILURE in files:
                found[path] = _load(path)
                inside.clear()
            if PLAN in files:
                for planned in _planned(path):
                    found.setdefault(planned.path, planned)
            inside.sort()
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, folders))} holds no run; train one with `ssedb train` or `ssedb sweep`"
        )
    return _name_methods(_mark_duplicates([found[path] for path in sorted(found)]))


def _load(path: Path) -> Run:
    try:
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        config = {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Run(path, {}, "damaged", f"config.toml cannot be read: {error}")
    failure = _json(path / FAILURE)
    config = migrated(config or failure.get("config", {}))
    summary, probe, origin = (_json(path / name) for name in ("summary.json", "probe.json", ORIGIN))
    if summary.get("finished") and summary.get("steps", 0) >= config.get("steps", 0):
        status, reason = "finished", ""
    elif failure:
        status, reason = (
            "failed",
            f"{failure.get('error', 'unknown error')} (tried {failure.get('attempts', 1)} times)",
        )
    else:
        steps = summary.get("steps", 0)
        status, reason = (
            "unfinished",
            f"at step {steps:,} of {config.get('steps', 0):,}" if steps else "no step was saved",
        )
    return Run(path, config, status, reason, summary, {} if probe.get("fresh") else probe, origin)  # type: ignore[arg-type]


def _planned(folder: Path) -> list[Run]:
    runs = _json(folder / PLAN).get("runs", [])
    return [
        Run(folder / run["folder"], run["config"], "missing", "planned, not begun") for run in runs
    ]


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _mark_duplicates(runs: list[Run]) -> list[Run]:
    """The same run twice (two sweeps may hold it), or stopped earlier: counted twice it would pass for another seed."""

    def settings(run: Run) -> str:
        return repr(
            sorted((k, v) for k, v in run.config.items() if k not in {"steps", *NOT_OF_THE_RUN})
        )

    longest: dict[str, Run] = {}
    for run in sorted(
        filter(lambda run: run.finished, runs), key=lambda run: -run.config.get("steps", 0)
    ):
        longest.setdefault(settings(run), run)
    marked = []
    for run in runs:
        same = longest[settings(run)] if run.finished else run
        marked.append(
            run
            if same is run
            else replace(run, status="duplicate", reason=f"the same run as {same.path}")
        )
    return marked


def _name_methods(runs: list[Run]) -> list[Run]:
    """A method is a bonus plus whatever tells its runs on the same env and noise apart, seeds aside.

    Names that imply other settings come first, so that `db no-upper` is not also called `alpha1=0.0`.
    """
    groups: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
    for run in runs:
        if run.config:
            group = groups.setdefault(str(run.config.get("bonus", "?")), {}).setdefault(
                (run.env, run.noise), []
            )
            group.append(_settings(run.config))
    telling = {bonus: _telling_keys(list(several.values())) for bonus, several in groups.items()}
    named = []
    for run in runs:
        bonus, settings = str(run.config.get("bonus", "?")), _settings(run.config)
        words = [
            _setting_name(key, settings[key]) for key in telling.get(bonus, []) if key in settings
        ]
        named.append(replace(run, method=" ".join([bonus, *filter(None, words)])))
    return named


def _telling_keys(groups: list[list[dict[str, Any]]]) -> list[str]:
    """Settings, as few as it takes, that differ within a group where those before them do not."""
    keys = dict.fromkeys(
        ["ablation", "fidelity", "preset", *(k for group in groups for run in group for k in run)]
    )
    chosen: list[str] = []
    for key in keys:
        for group in groups:
            values: dict[str, set[str]] = {}
            for run in [run for run in group if key in run]:
                values.setdefault(repr([run.get(k) for k in chosen]), set()).add(repr(run[key]))
            if any(len(different) > 1 for different in values.values()):
                chosen.append(key)
                break
    return chosen


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    flat = {
        key: value
        for key, value in config.items()
        if key not in NOT_A_METHOD and key != "bonus_options"
    }
    return {**flat, **config.get("bonus_options", {})}


def _setting_name(key: str, value: Any) -> str:
    if key in ("ablation", "fidelity", "preset"):
        return "" if value == "none" else str(value)
    return f"{key}={value}"


def method_order(runs: Iterable[Run]) -> list[str]:
    """Methods as every table and figure orders them: DB, its kin, the rivals, the agent that acts at random."""

    def rank(method: str) -> tuple[int, str]:
        bonus = method.split()[0]
        return (
            0 if bonus == "db" else 1 if bonus.startswith("db-") else 3 if bonus == "none" else 2,
            method,
        )

    return sorted({run.method for run in runs}, key=rank)


def _measure(key: str) -> Measure:
    return MEASURES.get(key, Measure(key))


def label(key: str) -> str:
    return _measure(key).label


def about(key: str, games: Iterable[str]) -> str:
    """Say what the 0 of a normalised score is; empty for other measures."""
    return (
        references.about(games, literature=key.endswith("_literature")) if key in NORMALISED else ""
    )


def bounds(key: str) -> tuple[float, float]:
    """Between which a figure must lie."""
    return _measure(key).bounds


# Tables.


def run_table(runs: Iterable[Run], keys: Sequence[str] = ()) -> list[Row]:
    """One row a run: what it was, how it ended, its figures (those of MEASURES that any run has, or `keys`)."""
    runs = list(runs)
    keys = list(keys) or [
        key for key in MEASURES if any(run.value(key) is not None for run in runs)
    ]
    return [
        {
            "run": run.path.name, "path": str(run.path), "env": run.env, "noise": run.noise, "method": run.method,
            "bonus": run.config.get("bonus"), "seed": run.seed, "status": run.status, "reason": run.reason,
            "steps": run.summary.get("steps", 0), "steps_asked": run.config.get("steps"), "code": run.origin.get("code"),
            **{key: run.value(key) for key in keys},
        }
        for run in runs
    ]  # fmt: skip


def conditions(runs: Iterable[Run]) -> dict[tuple[str, str, str], list[Run]]:
    """Runs by (env, noise, method): envs and noises by name, none first, methods in their usual order."""
    runs = [run for run in runs if run.config]
    methods = method_order(runs)
    found: dict[tuple[str, str, str], list[Run]] = {}
    for run in sorted(
        runs, key=lambda r: (r.env, r.noise != "none", r.noise, methods.index(r.method))
    ):
        found.setdefault((run.env, run.noise, run.method), []).append(run)
    return found


def tasks_of(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """The (env, noise) pairs, in their usual order."""
    return list(dict.fromkeys((env, noise) for env, noise, _ in conditions(runs)))


def condition_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """One row an (env, noise, method): mean over its finished runs with the 95% interval, and how many were left out.

    A finished run without a value (no episode has ended, a bonus without features) is left out and counted too.
    """
    rows = []
    for (env, noise, method), several in conditions(runs).items():
        values = [v for run in several if run.finished and (v := run.value(key)) is not None]
        row: Row = {
            "env": env,
            "noise": noise,
            "method": method,
            "measure": key,
            "runs": len(values),
        }
        row["left_out"] = len(several) - len(values)
        if values:
            e = statistics.bootstrap({env: values}, statistics.mean, seed=seed, bounds=bounds(key))
            row |= {
                "mean": e.value,
                "low": _number(e.low),
                "high": _number(e.high),
                "values": values,
            }
        else:
            row |= {"mean": None, "low": None, "high": None, "values": []}
        rows.append(row)
    return rows


def scores_by_task(runs: Iterable[Run], key: str) -> dict[str, dict[str, list[float]]]:
    """method -> task ("env, noise") -> values of the finished runs: what the aggregates and comparisons take."""
    found: dict[str, dict[str, list[float]]] = {}
    for (env, noise, method), several in conditions(runs).items():
        values = [v for run in several if run.finished and (v := run.value(key)) is not None]
        if values:
            found.setdefault(method, {})[f"{env}, {noise}"] = values
    return found


def aggregate_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """One row a method: IQM, mean, median (and the gap to the measure's goal) over the tasks that every method has."""
    scores = scores_by_task(runs, key)
    common = _common_tasks(scores)
    measure = _measure(key)
    rows = []
    for method, tasks in scores.items():
        row: Row = {
            "method": method,
            "measure": key,
            "tasks": len(common),
            "tasks_left_out": len(tasks) - len(common),
        }
        chosen = {task: tasks[task] for task in common}
        for name, statistic in statistics.AGGREGATES.items():
            if not chosen or (name == "optimality_gap" and measure.goal is None):
                continue
            e = statistics.bootstrap(chosen, statistic, seed=seed, bounds=measure.bounds)
            row |= {
                "runs": e.runs,
                name: e.value,
                f"{name}_low": _number(e.low),
                f"{name}_high": _number(e.high),
            }
        rows.append(row)
    return rows


def improvement_table(runs: Iterable[Run], key: str, *, seed: int = 0) -> list[Row]:
    """One row an ordered pair of methods: how probably a run of the first beats one of the second, on common tasks."""
    scores = scores_by_task(runs, key)
    sign = -1.0 if _measure(key).better == "low" else 1.0
    rows = []
    for first, mine in scores.items():
        for second, theirs in scores.items():
            common = [task for task in mine if task in theirs]
            if first == second or not common:
                continue
            x, y = ({t: [sign * v for v in tasks[t]] for t in common} for tasks in (mine, theirs))
            e = statistics.improvement(x, y, seed=seed)
            row: Row = {"first": first, "second": second, "measure": key, "tasks": len(common)}
            rows.append(
                row | {"probability": e.value, "low": _number(e.low), "high": _number(e.high)}
            )
    return rows


def efficiency_table(
    runs: Iterable[Run], key: str, *, points: int = 40, seed: int = 0
) -> list[Row]:
    """IQM over the common tasks along training: a row a method and step. Unfinished runs count as far as they go."""
    found: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    for (env, noise, method), several in conditions(runs).items():
        counted = [run for run in several if run.status != "duplicate"]
        curves = [curve for run in counted if np.isfinite((curve := run.curve(key))[1]).any()]
        if curves:
            found.setdefault(method, {})[f"{env}, {noise}"] = curves
    common = _common_tasks(found)
    ends = [steps for tasks in found.values() for task in common for steps, _ in tasks[task]]
    if not ends:
        return []
    grid = np.linspace(min(steps[0] for steps in ends), max(steps[-1] for steps in ends), points)
    rows: list[Row] = []
    for method, tasks in found.items():
        on_grid = {
            task: [statistics.resample(*curve, grid) for curve in tasks[task]] for task in common
        }
        e, counts = statistics.curve(
            on_grid, statistics.iqm, reps=400, seed=seed, bounds=bounds(key)
        )
        for i in np.flatnonzero(np.isfinite(e.value)):
            row: Row = {
                "method": method,
                "measure": key,
                "tasks": len(common),
                "steps": float(grid[i]),
                "runs": int(counts[i]),
            }
            rows.append(
                row
                | {
                    "iqm": float(e.value[i]),
                    "low": _number(float(e.low[i])),
                    "high": _number(float(e.high[i])),
                }
            )
    return rows


def _common_tasks(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    every = dict.fromkeys(task for tasks in scores.values() for task in tasks)
    return [task for task in every if all(task in tasks for tasks in scores.values())]


def left_out(runs: Iterable[Run]) -> list[Row]:
    """The runs that no average holds, and why."""
    return [
        {"run": run.path.name, "env": run.env, "noise": run.noise, "method": run.method, "seed": run.seed,
         "status": run.status, "reason": run.reason}
        for run in runs if not run.finished
    ]  # fmt: skip


def alarm_table(runs: Iterable[Run]) -> list[Row]:
    """Return one row an alarm about a policy, those that ended again included, with the remedy."""
    return [
        {
            "run": run.path.name,
            "method": run.method,
            **asdict(alarm),
            "text": alarm.text(run.config),
        }
        for run in runs
        for alarm in run.alarms
    ]


def write_parquet(runs: Sequence[Run], folder: Path) -> list[Path]:
    """The whole sweep as two Parquet files: `runs.parquet`, a row a run, and `curves.parquet`, a row an update."""
    try:
        import polars
    except ImportError:
        raise ConfigError(
            "polars is not installed, so no Parquet is written; run `pip install ssedb[report]`"
        ) from None
    curves = []
    for run in [run for run in runs if run.metrics]:
        about = {
            "run": run.path.name,
            "env": run.env,
            "noise": run.noise,
            "method": run.method,
            "seed": run.seed,
        }
        columns = [polars.lit(value).alias(name) for name, value in about.items()]
        curves.append(
            polars.DataFrame(run.metrics, nan_to_null=True).select(*columns, polars.all())
        )
    tables = {"runs": polars.DataFrame(run_table(runs), infer_schema_length=None)}
    tables |= {"curves": polars.concat(curves, how="diagonal_relaxed")} if curves else {}
    for name, table in tables.items():
        table.write_parquet(folder / f"{name}.parquet")
    return [folder / f"{name}.parquet" for name in tables]
