"""Training of a bonus model on a rollout, and its steps, for our trainer and for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from ssedb.bonuses.base import Bonus, require_loss
from ssedb.errors import TrainingError

M = TypeVar("M")


def train_bonus(
    bonus: Bonus,
    step: Callable[[M], dict[str, Tensor]],
    epochs: Iterable[Iterable[M]],
    wrap: Callable[[Any], Any] = lambda function: function,
) -> Iterator[dict[str, Tensor]]:
    """Train a bonus model on a rollout; yield the metrics of each train step.

    Args:
        bonus: the model.
        step: takes a train step on a minibatch, as `bonus_step` does, and returns its metrics.
        epochs: the minibatches of each pass over the rollout.
        wrap: decides how an engine runs what follows an epoch and the rollout.
    """
    after_epoch, after_rollout = wrap(bonus.after_epoch), wrap(bonus.after_rollout)
    for minibatches in epochs:
        for minibatch in minibatches:
            yield step(minibatch)
        after_epoch()
    after_rollout()


def descend(loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Take an optimizer step down the gradient of a loss; return the norm of the gradient."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    return get_total_norm([g for g in gradients if g is not None])


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
        Metrics, `bonus_loss` and `bonus_gradient` among them.
    """
    loss, metrics = require_loss(bonus, bonus.loss(*transitions, mask))
    metrics = {"bonus_loss": loss.detach(), **metrics}
    if loss.requires_grad:
        metrics["bonus_gradient"] = descend(loss, optimizer)
    elif any(parameter.requires_grad for parameter in bonus.parameters()):
        raise TrainingError(
            f"{type(bonus).__name__}.loss gave a loss without a gradient, though the bonus has "
            "parameters to train; train it outside of torch.no_grad() and torch.inference_mode(), "
            "or freeze them by requires_grad_(False)"
        )
    bonus.after_step()
    return metrics
