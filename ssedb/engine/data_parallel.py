"""The plain engine in each of several processes that share a run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ssedb.engine.base import Engine
from ssedb.engine.distributed import Group


class DataParallelEngine(Engine):
    """The plain engine, with gradients averaged over the processes before each optimizer step.

    All processes begin with the same weights and the same random state, and draw the same numbers
    outside of background work; there each draws its own, for its own rows.
    """

    def __init__(
        self, device: torch.device, *, precision: str = "fp32", seed: int = 0, group: Group
    ) -> None:
        super().__init__(device, precision=precision, seed=seed, own_draws=True, group=group)

    def adam(self, module: nn.Module, rate: float, eps: float) -> torch.optim.Adam:
        """Make an optimizer that averages gradients over the processes before it steps."""
        adam = super().adam(module, rate, eps)
        adam.register_step_pre_hook(self._average_gradients)
        return adam

    def _average_gradients(self, adam: torch.optim.Optimizer, *unused: Any) -> None:
        """Average all gradients in one exchange."""
        parameters = [p for group in adam.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.mean(torch.cat([gradient.flatten() for gradient in gradients]))
        means = flat.split([gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))

    def state_dict(self) -> dict[str, Any]:
        """Return the random states of all processes."""
        return {"ranks": self.group.gather_objects(super().state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load this process's random states; those of another number of processes do not fit."""
        ranks = state.get("ranks", [])
        if len(ranks) == self.group.size:
            super().load_state_dict(ranks[self.group.rank])
