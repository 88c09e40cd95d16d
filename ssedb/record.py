"""Metrics of one iteration, while it goes on, and guards against NaN and Inf."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

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


def guards(observations: Tensor, rewards: Tensor, values: Tensor) -> dict[str, Tensor]:
    """Return what shows NaN and Inf in a rollout, in the order in which one causes the other."""
    floats = {"observation": observations} if observations.is_floating_point() else {}
    tensors = {**floats, "environment_reward": rewards, "policy_value": values}
    return {name: _largest(tensor) for name, tensor in tensors.items()}


def require_finite(metrics: Metrics, record: Record) -> Metrics:
    """Return metrics; raise TrainingError, with the source, if a value was not finite."""
    others = [(k, v) for k, v in metrics.items() if isinstance(v, float) and not math.isfinite(v)]
    if record.wrong or others:
        name, value = record.wrong or others[0]
        raise TrainingError(f"{name} is {value} after update {metrics['updates']}")
    return metrics


def require_finite_tensors(module: nn.Module, name: str, updates: int) -> None:
    """Raise TrainingError, with the first that is wrong, if weights or buffers are not finite."""
    for kind, tensors in (
        ("weights", module.named_parameters()),
        ("buffers", module.named_buffers()),
    ):
        sizes = {k: _largest(x) for k, x in tensors if x.is_floating_point() and x.numel()}
        if sizes and not torch.stack([*sizes.values()]).isfinite().all():
            wrong = next(k for k, size in sizes.items() if not size.isfinite())
            raise TrainingError(
                f"the {kind} of the {name} are not finite after update {updates} ({wrong})"
            )


def _largest(x: Tensor) -> Tensor:
    """Return the largest absolute value as a float32 scalar; NaN if any value is."""
    return x.detach().abs().amax().float()
