"""Alarms about the policy: its value explains nothing, or it hardly varies its actions."""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

SPAN = 15
"""Updates whose median decides, so that a noisy row does not."""
UPDATES_UNDER_LIMIT = 60
"""Updates for which that median must lie under its limit; a healthy run was there for up to 35."""
EXPLAINED = 0.0
"""Explained variance of a constant. Runs that explored ended at 0.1 to 0.9."""
ENTROPY = 0.08
"""Nats; nearly every action is the likeliest. Collapsed runs had up to 0.05, others 0.13."""
MetricName = Literal["explained_variance", "entropy"]
LIMITS: dict[MetricName, float] = {"explained_variance": EXPLAINED, "entropy": ENTROPY}
NAMES = {
    "explained_variance": "explained variance of the value",
    "entropy": "entropy of the policy",
}
MEANING = {
    "explained_variance": "the advantages are mostly the value's errors",
    "entropy": "the policy hardly varies its actions any more",
}


@dataclass(frozen=True)
class Alarm:
    """A metric that stayed under its limit."""

    metric: MetricName
    since: int
    """Step from which its median was under the limit."""
    until: int
    """Step up to which it was: that of the newest row while the alarm stands."""
    stands: bool
    value: float
    """The newest median that was under the limit."""

    def text(self, config: Mapping[str, Any]) -> str:
        """Say what is wrong, for how long, and what to try instead of a run's settings."""
        when = "has been" if self.stands else "was"
        end = "" if self.stands else f", up to step {self.until:,}"
        return (
            f"{NAMES[self.metric]} {self.value:.2f}: it {when} under {LIMITS[self.metric]:g} for "
            f"{self.until - self.since:,} steps{end}, so {MEANING[self.metric]}; "
            f"try {remedy(self.metric, config)}"
        )


def read_alarms(data: Any) -> list[Alarm] | None:
    """Return the alarms that `Watch.as_data` wrote; None if `data` is something else."""
    try:
        return TypeAdapter(list[Alarm]).validate_json(json.dumps(data), strict=True)
    except (ValueError, RecursionError):
        return None


def remedy(metric: str, config: Mapping[str, Any]) -> str:
    """Name flags that help, without those that a run's settings have already."""
    tries = [] if config.get("reward_scale") == "recent" else ["--reward-scale recent"]
    if metric == "entropy":
        tries.append(f"a higher --entropy-coef than {config.get('entropy_coef', 0.001):g}")
    rate = config.get("learning_rate")
    tries.append("a lower --learning-rate" + (f" than {rate:g}" if rate else ""))
    return ", ".join(tries[:-1]) + (" or " if len(tries) > 1 else "") + tries[-1]


def explain(metric: MetricName, config: Mapping[str, Any]) -> str:
    """Say what an alarm means, and what to try instead of a run's settings."""
    limit = f"{NAMES[metric].capitalize()} under {LIMITS[metric]:g}"
    return f"{limit}: {MEANING[metric]}; try {remedy(metric, config)}."


class Watch:
    """Alarms of one run, from its rows of metrics as they come."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._metrics = {name: _Metric(name) for name in LIMITS}
        for row in rows:
            self.see(row)

    def see(self, row: Mapping[str, Any]) -> list[Alarm]:
        """Observe a row of metrics; return the alarms that begin with it, only each metric's first.

        A policy that is not trained has no entropy in its rows, and raises no alarm. The entropy
        of a Gaussian policy, which has a std, may be of any sign, and raises none either.
        """
        if not _finite(row.get("entropy")):
            return []
        told = {name for name in LIMITS if name != "entropy" or "policy_std" not in row}
        known = [self._metrics[name] for name in LIMITS if name in told and _finite(row.get(name))]
        steps = int(row["steps"])
        return [metric.alarms[0] for metric in known if metric.see(steps, row[metric.name])]

    @property
    def alarms(self) -> list[Alarm]:
        """Every alarm so far, those that stand among them."""
        return [alarm for metric in self._metrics.values() for alarm in metric.alarms]

    @property
    def standing(self) -> list[str]:
        """Names of the metrics whose alarm stands."""
        return [alarm.metric for alarm in self.alarms if alarm.stands]

    def as_data(self) -> list[dict[str, Any]]:
        """Return the alarms for a JSON file."""
        return [asdict(alarm) for alarm in self.alarms]


class _Metric:
    """One metric of a run: its alarms, and since when its median is under the limit."""

    def __init__(self, name: MetricName) -> None:
        self.name = name
        self.alarms: list[Alarm] = []
        self._newest: deque[float] = deque(maxlen=SPAN)
        self._under: int = 0  # updates in a row
        self._since = self._before = 0

    def see(self, steps: int, value: float) -> bool:
        """Return whether the run's first alarm about this metric begins here."""
        self._newest.append(value)
        median = statistics.median(self._newest)
        if median >= LIMITS[self.name]:
            if self._under >= UPDATES_UNDER_LIMIT:
                last = self.alarms.pop()
                self.alarms.append(Alarm(self.name, last.since, last.until, False, last.value))
            self._under = 0
        else:
            if self._under == 0:
                self._since = self._before
            self._under += 1
            if self._under > UPDATES_UNDER_LIMIT:
                self.alarms.pop()
            if self._under >= UPDATES_UNDER_LIMIT:
                self.alarms.append(Alarm(self.name, self._since, steps, True, median))
        self._before = steps
        return self._under == UPDATES_UNDER_LIMIT and len(self.alarms) == 1


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
