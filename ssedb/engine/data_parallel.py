"""The plain engine in each of several processes that share a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ssedb.engine.base import Engine
from ssedb.engine.distributed import Group

T = TypeVar("T")


class DataParallelEngine(Engine):
    """The plain engine, with gradients averaged over the processes before each optimizer step.

    All processes begin with the same weights and the same random state, and draw the same numbers
    outside of background updates; there each draws its own, for its own rows.
    """

    def __init__(
        self, device: torch.device, *, precision: str = "fp32", seed: int = 0, group: Group
    ) -> None:
        self.rank = group.rank
        self.size = group.size
        self._group = group
        super().__init__(device, precision=precision, seed=seed)
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self._other_seed(seed))

    def _other_seed(self, seed: int) -> int:
        return int(np.random.SeedSequence(seed).generate_state(self.rank + 1)[self.rank])

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

    def gather(self, part: Tensor, dim: int = 0) -> Tensor:
        """Concatenate the parts of all processes along a dimension."""
        return self._group.gather(part, dim)

    def gather_objects(self, own: T) -> list[T]:
        """Return the objects of all processes, by rank."""
        return self._group.gather_objects(own)

    def mean(self, values: Tensor) -> Tensor:
        """Average over the processes."""
        return self._group.all_reduce(values) / self.size

    def side(self) -> AbstractContextManager[None]:
        """Run a block with the random numbers of this process alone."""
        return super().side() if self.device.type == "cuda" else self._own_randomness_on_cpu()

    @contextmanager
    def _own_randomness_on_cpu(self) -> Iterator[None]:
        assert self._generator is not None
        before = torch.get_rng_state()
        torch.set_rng_state(self._generator.get_state())
        try:
            yield
        finally:
            self._generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)

    def state_dict(self) -> dict[str, Any]:
        """Return the random states of all processes."""
        assert self._generator is not None
        own = {"background": self._generator.get_state()}
        if self.device.type == "cuda":
            own = super().state_dict()
        return {"ranks": self.gather_objects(own)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over this process's random states; those of another number of processes do not fit."""
        ranks = state.get("ranks", [])
        if len(ranks) != self.size:
            return
        if self.device.type == "cuda":
            super().load_state_dict(ranks[self.rank])
        else:
            assert self._generator is not None
            self._generator.set_state(ranks[self.rank]["background"])
