"""Metrics of one iteration, while it goes on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ssedb.errors import TrainingError

Metrics = dict[str, Any]


class Record:
    """Metrics of one iteration; tensors stay on the device until `means`.

    Attributes:
        about: counters, and what the environments tell.
        seconds: how long the iteration took.
    """

    def __init__(self) -> None:
        self.about: Metrics = {}
        self.seconds = 0.0
        self._tensors: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, **metrics: Tensor) -> None:
        """Add a value, a scalar, of each metric."""
        for name, value in metrics.items():
            self._tensors[name].append(value)

    def means(self, over_processes: Callable[[Tensor], Tensor]) -> Metrics:
        """Return the mean of every metric; waits for the device, once.

        Args:
            over_processes: averages a tensor over the processes that share the run.
        """
        means = [torch.stack(values).double().mean() for values in self._tensors.values()]
        values = over_processes(torch.stack(means).cpu()).tolist()
        return dict(zip(self._tensors, values, strict=True))


def require_finite(metrics: Metrics) -> Metrics:
    """Return metrics; raise TrainingError for one that is not finite."""
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise TrainingError(f"{name} is {value} after update {metrics['updates']}")
    return metrics
