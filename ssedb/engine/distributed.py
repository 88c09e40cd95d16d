"""Process groups, as `torchrun` starts them. Importing this imports no torch by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ssedb.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


def size() -> int:
    """Return how many processes torchrun has started."""
    return _number("WORLD_SIZE") if {"RANK", "WORLD_SIZE"} <= set(os.environ) else 1


def rank() -> int:
    """Return the number of this process among them."""
    return _number("RANK") if size() > 1 else 0


def _number(name: str) -> int:
    """Return a number that torchrun has set."""
    text = os.environ[name]
    if not text.isdecimal() or not text.isascii():
        raise ConfigError(f"{name}={text!r} in the environment is no number; unset it")
    return int(text)


class Group:
    """A process group; with one process, every exchange returns what it is given."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    def all_reduce(self, x: Tensor) -> Tensor:
        """Sum over the processes."""
        if self.size == 1:
            return x
        import torch.distributed as dist

        total = x.detach().contiguous().clone()
        with _naming_lost_processes():
            dist.all_reduce(total)
        return total

    def gather(self, shard: Tensor, dim: int = 0) -> Tensor:
        """Concatenate the shards of all processes along a dimension."""
        if self.size == 1:
            return shard
        import torch
        import torch.distributed as dist

        shard = shard.detach().contiguous()
        shards = [torch.empty_like(shard) for _ in range(self.size)]
        with _naming_lost_processes():
            dist.all_gather(shards, shard)
        return torch.cat(shards, dim)

    def gather_objects(self, own: T) -> list[T]:
        """Return the objects of all processes, by rank."""
        if self.size == 1:
            return [own]
        import torch.distributed as dist

        objects: list[Any] = [None] * self.size
        with _naming_lost_processes():
            dist.all_gather_object(objects, own)
        return objects

    def from_first(self, make: Callable[[], T]) -> T:
        """Make an object in the first process, for all."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        box = [make() if self.rank == 0 else None]
        with _naming_lost_processes():
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def any(self, flag: bool) -> bool:
        """Tell whether a flag is set in any process."""
        if self.size == 1:
            return flag
        import torch

        return bool(self.all_reduce(torch.tensor(int(flag))) > 0)


ALONE = Group()


@contextmanager
def process_group() -> Iterator[Group]:
    """Connect the processes that torchrun has started; without torchrun this one is alone."""
    if size() > 1 and "MASTER_ADDR" not in os.environ:
        raise ConfigError(
            f"WORLD_SIZE={size()} is in the environment, and torchrun did not start this process; "
            "unset it, or use torchrun"
        )
    if size() == 1:
        yield ALONE
        return
    import torch
    import torch.distributed as dist

    # Its functions have the group that exists on import as their default. Torch's optimizers import
    # it, and then it would keep the group, whose threads may abort the process at its end.
    import torch.distributed.nn

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Group(rank(), size())
        with _naming_lost_processes():
            dist.barrier()  # torchrun ends the others when one leaves: let all be done
    finally:
        dist.destroy_process_group()


@contextmanager
def _naming_lost_processes() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).split("] ", 1)[-1]  # without the place in the C++ code
        reason = reason.split(". ")[0].splitlines()[0]
        raise TrainingError(
            f"process {rank()} of {size()} has lost the others ({reason})"
        ) from None
