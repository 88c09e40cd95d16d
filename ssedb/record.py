"""Metrics of one iteration, while it goes on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ssedb.errors import TrainingError

Metrics = dict[str, Any]
GUARDS = (
    "observation",
    "environment_reward",
    "policy_value",
    "policy_gradient",
    "bonus_gradient",
)
"""Values that are only looked at for NaN and Inf, not logged."""


class Record:
    """Metrics of one iteration; tensors stay on the device until `means`.

    Attributes:
        about: counters, and what the environments tell.
        seconds: how long the iteration took.
        wrong: first value that was not finite, in order of computation, with its name; None if all
            were finite.
    """

    def __init__(self) -> None:
        self.about: Metrics = {}
        self.seconds = 0.0
        self.wrong: tuple[str, float] | None = None
        self._added: list[tuple[str, Tensor]] = []

    def add(self, **metrics: Tensor) -> None:
        """Add a value, a scalar, of each metric or guard."""
        self._added += metrics.items()

    def means(self, over_processes: Callable[[Tensor], Tensor]) -> Metrics:
        """Return the mean of every metric; waits for the device, once.

        If a mean is not finite, set `wrong`.

        Args:
            over_processes: averages a tensor over the processes that share the run.
        """
        tensors: dict[str, list[Tensor]] = defaultdict(list)
        for name, value in self._added:
            tensors[name].append(value)
        stacked = [torch.stack(values).double().mean() for values in tensors.values()]
        on_host = over_processes(torch.stack(stacked).cpu()).tolist()
        means = dict(zip(tensors, on_host, strict=True))
        if wrong := [item for item in means.items() if not math.isfinite(item[1])]:
            # Another process may have found it.
            self.wrong = next(self._not_finite(), wrong[0])
        return {name: mean for name, mean in means.items() if name not in GUARDS}

    def _not_finite(self) -> Iterator[tuple[str, float]]:
        for name, tensor in self._added:
            if not math.isfinite(value := tensor.item()):
                yield name, value


def require_finite(metrics: Metrics, record: Record) -> Metrics:
    """Return metrics; raise TrainingError, with the source, if a value was not finite."""
    others = [(k, v) for k, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)]
    if record.wrong or others:
        name, value = record.wrong or others[0]
        raise TrainingError(f"{name} is {value} after update {metrics['updates']}")
    return metrics
