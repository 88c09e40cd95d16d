"""Training of a bonus outside of a trainer, one batch at a time."""

from __future__ import annotations

from typing import Any

import torch

from ssedb.bonuses.base import Bonus
from ssedb.engine.base import Engine
from ssedb.updates import descend, train_bonus


def make_adam(bonus: Bonus, rate: float, eps: float) -> torch.optim.Adam:
    """Make the optimizer that a trainer has, on the bonus's device."""
    return Engine(bonus.normalize.mean.device).adam(bonus, rate, eps)


def train_step(
    bonus: Bonus, batch: tuple[Any, ...], adam: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """Take one step of the bonus on a batch; return its metrics.

    Unlike `updates.bonus_step`, sums a loss that is no scalar: the conformance kit goes on with it.
    """
    loss, metrics = bonus.loss(*batch[:3])
    if loss.requires_grad:
        descend(loss.sum(), adam)
    bonus.after_step()
    return metrics


def train_on_rollout(bonus: Bonus, batch: tuple[Any, ...], adam: torch.optim.Optimizer) -> None:
    """Update a bonus as a trainer does after a rollout of one minibatch."""
    bonus.observe(*batch)
    for _ in train_bonus(bonus, lambda rows: train_step(bonus, rows, adam), [[batch]]):
        pass
