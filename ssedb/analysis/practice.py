"""Training of a bonus outside of a trainer, one batch at a time."""

from __future__ import annotations

from typing import Any

import torch

from ssedb.bonuses.base import Bonus


def make_adam(bonus: Bonus, rate: float) -> torch.optim.Optimizer | None:
    """Make an optimizer of the trained parameters; None where there are none."""
    trained = [p for p in bonus.parameters() if p.requires_grad]
    return torch.optim.Adam(trained, lr=rate) if trained else None


def train_step(bonus: Bonus, batch: tuple[Any, ...], adam: torch.optim.Optimizer | None) -> None:
    """Make one update of the bonus on a batch.

    Unlike `updates.bonus_step`, sums a loss that is no scalar: the conformance kit goes on with it.
    """
    loss, _ = bonus.loss(*batch[:3])
    if adam is not None and loss.requires_grad:
        adam.zero_grad()
        loss.sum().backward()
        adam.step()
    bonus.after_step()


def practise(bonus: Bonus, batch: tuple[Any, ...], adam: torch.optim.Optimizer | None) -> None:
    """Do what a trainer does with a rollout of one minibatch."""
    bonus.observe(*batch)
    train_step(bonus, batch, adam)
    bonus.after_epoch()
    bonus.after_rollout()
