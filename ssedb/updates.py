"""Optimizer steps of any loss and of a bonus model, for our trainer and for others."""

from __future__ import annotations

import torch
from torch import Tensor

from ssedb.bonuses.base import Bonus, checked


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Take an optimizer step down the gradient of a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def bonus_step(
    bonus: Bonus,
    optimizer: torch.optim.Optimizer,
    transitions: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None = None,
) -> dict[str, Tensor]:
    """Take one step of a bonus model on a minibatch.

    Args:
        bonus: the model.
        optimizer: of the bonus's trained parameters.
        transitions: obs [B, ...], actions [B, ...] and next_obs [B, ...].
        mask: bool [B], the transitions that count; all unless given.

    Returns:
        Metrics, `bonus_loss` among them.
    """
    loss, metrics = bonus.loss(*transitions, mask)
    checked(bonus, "loss", loss, ())
    if loss.requires_grad:
        descend(loss, optimizer)
    bonus.after_step()
    return {"bonus_loss": loss.detach(), **metrics}
