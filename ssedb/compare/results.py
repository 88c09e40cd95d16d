"""Run folders as results: which runs there are, how each ended, what it measured. Needs no torch.

runs = load_runs(Path("runs/quick"))
runs[0].value("states_share")
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ssedb.compare import statistics
from ssedb.compare.measures import CLEAN, NORMALISED, OF_BONUS, OF_NOISE, PROBED
from ssedb.config import FIDELITIES, migrated
from ssedb.envs.names import env_label
from ssedb.errors import ConfigError
from ssedb.noises import label_of
from ssedb.reading import Damaged, read_table, require_folder, require_types
from ssedb.runs.alarms import LIMITS, Alarm, Watch, read_alarms
from ssedb.runs.folder import FAILURE, NOT_OF_THE_RUN, PLAN, PROVENANCE
from ssedb.runs.metrics import MAPS, Log, read_log
from ssedb.terminal import plural

Status = Literal["finished", "unfinished", "failed", "missing", "damaged", "duplicate"]

SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("env", "noise", "noise_variant", "bonus"), str),
    **dict.fromkeys(("env_kwargs", "bonus_options"), dict),
    **dict.fromkeys(("steps", "seed"), int),
    **dict.fromkeys(("learning_rate", "entropy_coef", "noise_strength"), (int, float)),
}
"""Types of the settings that are read here."""
LOOKS = (
    "db-ensemble", "rnd", "count", "db", "disagreement", "icm", "lbs", "e3b", "cb", "re3", "lpm",
    "db-count", "db-ucb", "db-ngu", "db-bebold",
)  # fmt: skip
"""Methods whose colour and line are the same in every figure and page, in the order of these."""
RECOMMENDED = str(FIDELITIES["ours"]["bonus"])
"""The bonus of the recipe that we recommend."""
NOT_A_METHOD = {
    *("env", "env_kwargs", "noise", "noise_strength", "noise_variant", "bonus", "seed", "steps"),
    *NOT_OF_THE_RUN,
}
"""Settings that do not make another method."""


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
    provenance: Mapping[str, Any] = field(default_factory=dict)
    method: str = "?"
    """The bonus, and the settings that tell it from another run of the same bonus."""
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    """Every metric along training, one array a key; NaN where a line has no finite number."""
    not_finite: tuple[str, ...] = ()
    """Metrics that are NaN or infinite in the log, where the curves have holes."""
    repeated: int = 0
    """Updates that the run logged again after it was resumed."""
    maps: Sequence[Mapping[str, Any]] = field(default=(), repr=False, compare=False)
    """On Rooms, visits and bonus by cell along training."""

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.status == "finished"

    @property
    def env(self) -> str:
        """The environment, with its arguments if it has any."""
        return env_label(str(self.config.get("env", "?")), self.config.get("env_kwargs", {}))

    @property
    def noise(self) -> str:
        """The noise, with its variant and strength if they are unusual."""
        return label_of(self.config)

    @property
    def seed(self) -> int | None:
        """The seed."""
        return self.config.get("seed")

    @cached_property
    def alarms(self) -> list[Alarm]:
        """Alarms about the run's policy, as a finished run's summary has them.

        Those of any other run come from its metrics. A finished run's may be thinned, and an alarm
        counts updates.
        """
        if self.finished and (noted := read_alarms(self.summary.get("alarms"))) is not None:
            return noted
        # The std tells the watch that the policy is Gaussian.
        names = [n for n in ("steps", *LIMITS, "policy_std") if n in self.metrics]
        rows = zip(*(self.metrics[name].tolist() for name in names), strict=True)
        return Watch(dict(zip(names, row, strict=True)) for row in rows).alarms

    def curve(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and values of a metric or normalised score; empty where there are none."""
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
        """Return a measure at the end of the run; `area:KEY` is the mean of a curve."""
        if key.startswith("area:"):
            return number_or_none(statistics.area(*self.curve(key.removeprefix("area:"))))
        if key in NORMALISED:
            score = self.value("score")
            return None if score is None else NORMALISED[key](self.env, score)
        if key in OF_NOISE and str(self.probe.get("noise")).split(" (")[0] in CLEAN:
            return None
        if key in OF_BONUS and self.config.get("bonus") == "none":
            return None
        for place in (
            self.probe if key in PROBED else {},
            self.summary.get("last") or {},
            self.summary,
        ):
            if key in place:
                return number_or_none(place[key])
        return None


def load_runs(*folders: Path) -> list[Run]:
    """Load every run in or below the folders, and those that a sweep planned and never began."""
    found: dict[Path, Run] = {}
    for folder in folders:
        require_folder(folder, "name one that holds runs")
        for place, inside, files in os.walk(folder):
            path = Path(place)
            if "config.toml" in files or FAILURE in files:
                found[path] = load_run(path)
                inside.clear()
            if PLAN in files:
                for planned in _planned(path):
                    found.setdefault(planned.path, planned)
            inside.sort()
    if not found:
        raise ConfigError(
            f"{', '.join(map(str, folders))} holds no run; "
            "train one with `ssedb train` or `ssedb sweep`"
        )
    return _name_methods(_mark_duplicates([found[path] for path in sorted(found)]))


def load_run(path: Path) -> Run:
    """Load what is in a run's folder, perhaps nothing yet."""
    complaints: list[str] = []

    def read(name: str, **types: Any) -> dict[str, Any]:
        try:
            table = read_table(path / name, **types)
            return migrated(table) if name == "config.toml" else table
        except Damaged as error:
            complaints.append(str(error))
            return {}

    summary = read("summary.json", steps=int, finished=bool, last=dict, machine=dict)
    failure = read(FAILURE, error=str, attempts=int, config=dict)
    config = read("config.toml", **SETTINGS) or failure.get("config", {})
    probe = read("probe.json")
    provenance = read(PROVENANCE, code=str)
    log, maps = read_log(path / "metrics.jsonl"), read_log(path / MAPS)
    status, reason = _status(summary, failure, config, log, maps, complaints)
    return Run(
        path,
        config,
        status,
        reason,
        summary,
        {} if probe.get("fresh") else probe,
        provenance,
        metrics=_arrays(log.rows),
        not_finite=_not_finite(log.rows),
        repeated=log.repeated,
        maps=maps.rows,
    )


def _status(
    summary: Mapping[str, Any],
    failure: Mapping[str, Any],
    config: Mapping[str, Any],
    log: Log,
    maps: Log,
    complaints: Sequence[str],
) -> tuple[Status, str]:
    """Return the status of a run and, unless it has finished, the reason.

    `complaints` name the damage of all files but `log` and `maps`.
    """
    steps, asked = summary.get("steps", 0), config.get("steps", 0)
    finished = bool(summary.get("finished")) and steps >= asked
    status: Status = "finished" if finished else "unfinished"
    reached = max(steps, log.rows[-1]["steps"] if log.rows else 0)  # a summary may be older
    reason = f"at step {reached:,} of {asked:,}" if reached else "no step was logged"
    if failure and not finished:
        tried = plural(failure.get("attempts", 1), "time")
        status, reason = "failed", f"{failure.get('error', 'unknown error')} (tried {tried})"
    damage = list(complaints)
    if finished and not log.damage and (not log.rows or log.rows[-1]["steps"] < steps):
        at = f"ends at step {log.rows[-1]['steps']:,} of {steps:,}" if log.rows else "is lost"
        damage.append(f"metrics.jsonl {at}")
    for file in (log, maps):
        if file.cut and not finished:  # by the kill that ended the run
            reason += f"; {file.damage}"
        elif file.damage:
            damage.append(file.damage)
    if damage:
        return "damaged", "; ".join(damage)
    return status, "" if finished else reason


def _arrays(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    keys = dict.fromkeys(
        key for row in rows for key, value in row.items() if isinstance(value, (int, float))
    )
    return {key: np.array([number_or_none(row.get(key)) for row in rows], float) for key in keys}


def _not_finite(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    found = (k for row in rows for k, v in row.items() if isinstance(v, float) and not isfinite(v))
    return tuple(dict.fromkeys(found))


def _planned(folder: Path) -> list[Run]:
    """Return the runs of a sweep's plan; for a plan that cannot be trusted, a damaged one."""
    try:
        runs = []
        for entry in read_table(folder / PLAN, runs=list).get("runs", []):
            name, config = str(entry["folder"]), dict(entry["config"])
            path = folder / name
            if path.parent != folder or name in ("", ".", "..") or path.is_symlink():
                raise Damaged(f"{PLAN} names {name!r}, which is no folder of this sweep")
            require_types(PLAN, config, SETTINGS)
            runs.append(Run(path, migrated(config), "missing", "planned, not begun"))
        return runs
    except (KeyError, OSError, TypeError, ValueError) as error:
        said = error if isinstance(error, Damaged) else f"{PLAN} is not as a sweep writes it"
        return [Run(folder / PLAN, {}, "damaged", str(said))]


def number_or_none(value: Any) -> float | None:
    """Return a finite number as it is, and None for anything else."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None


def _mark_duplicates(runs: list[Run]) -> list[Run]:
    """Mark runs that are there twice (in two sweeps, or stopped earlier): they are no new seeds."""

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
            run if same is run else replace(run, status="duplicate", reason=_same(run, same))
        )
    return marked


def _same(run: Run, longest: Run) -> str:
    """Say why a run does not count beside another."""
    steps, more = run.config.get("steps"), longest.config.get("steps")
    shorter = "" if steps == more else f", with {steps:,} of its {more:,} steps"
    return f"the same run as {longest.path}{shorter}"


def _name_methods(runs: list[Run]) -> list[Run]:
    """Name each run's method: its bonus, and the settings that differ on the same env and noise.

    Variants of a noise count as the same noise here: `released` is a method and has its own.
    Names that imply other settings come first: `db no-upper` is not also called `alpha1=0.0`.
    """
    groups: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
    for run in runs:
        if run.config:
            group = groups.setdefault(str(run.config.get("bonus", "?")), {}).setdefault(
                (run.env, str(run.config.get("noise"))), []
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
    """Return settings, as few as it takes, that tell the runs of each group apart."""
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
    """Return the methods in the order of every table: DB, its kin, the rivals, the random agent."""

    def rank(method: str) -> tuple[int, str]:
        bonus = method.split()[0]
        return (
            0 if bonus == "db" else 1 if bonus.startswith("db-") else 3 if bonus == "none" else 2,
            method,
        )

    return sorted({run.method for run in runs}, key=rank)


def method_looks(methods: Iterable[str]) -> dict[str, int]:
    """Number the looks of methods: known ones have the same in every figure and page, none -1."""
    looks = {m: LOOKS.index(m) for m in methods if m in LOOKS}
    free = (i for i in itertools.count() if i not in looks.values())
    others = {m: -1 if m == "none" else next(free) for m in methods if m not in looks}
    return looks | others


def conditions(runs: Iterable[Run]) -> dict[tuple[str, str, str], list[Run]]:
    """Sort runs by (env, noise, method): envs and noises by name, methods in their usual order."""
    runs = [run for run in runs if run.config]
    methods = method_order(runs)
    found: dict[tuple[str, str, str], list[Run]] = {}
    for run in sorted(
        runs, key=lambda r: (r.env, r.noise != "none", r.noise, methods.index(r.method))
    ):
        found.setdefault((run.env, run.noise, run.method), []).append(run)
    return found


def tasks_of(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """Return the (env, noise) pairs of the runs, in their usual order."""
    return list(dict.fromkeys((env, noise) for env, noise, _ in conditions(runs)))
