"""One run on several processes, as `torchrun` starts them: each steps its own environments and computes its own rows.

After a rollout the processes exchange what they played. So all of them hold the same rollout, statistics, weights and random
state, and one differs from another only in which environments it steps and which rows of a batch it computes. A batch that
is split is handled inside `with team:`; there `current()` tells who computes which rows. Randomness is drawn for the whole
batch, and each process uses its rows of it: that makes one process and several the same run. Imports no torch by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ssedb.envs.names import pools_of
from ssedb.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from torch import Tensor

    from ssedb.config import TrainConfig

T = TypeVar("T")


class Team:
    """The processes of a run; with one, nothing here does anything."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def __enter__(self) -> Team:
        _entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.pop()

    def mine(self, whole: T, dim: int = 0) -> T:
        """The part of a whole (tensor or array) that is this process's, when it is cut along a dimension."""
        array: Any = whole
        length = array.shape[dim] // self.size
        return array[(slice(None),) * dim + (slice(self.rank * length, (self.rank + 1) * length),)]

    def gather(self, part: Tensor, dim: int = 0) -> Tensor:
        """The whole, from every process's part. Carries no gradient."""
        if self.size == 1:
            return part
        import torch
        import torch.distributed as dist

        part = part.detach().contiguous()
        parts = [torch.empty_like(part) for _ in range(self.size)]
        with _talking():
            dist.all_gather(parts, part)
        return torch.cat(parts, dim)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the processes, with gradient: every process's result depends on every process's x."""
        if self.size == 1:
            return x
        total = _reduced(x.detach()) + (x - x.detach() if x.requires_grad else 0)
        if total.requires_grad:
            total.register_hook(_reduced)
        return total

    def mean(self, x: Tensor) -> Tensor:
        """The same for the mean over the processes."""
        return self.sum(x) / self.size if self.size > 1 else x

    def any(self, flag: bool) -> bool:
        """Whether it holds in any process."""
        if self.size == 1:
            return flag
        import torch

        return bool(self.sum(torch.tensor(int(flag))) > 0)

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, known to all."""
        if self.size == 1:
            return make()
        import torch.distributed as dist

        box = [make() if self.rank == 0 else None]
        with _talking():
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Makes the gradients those of the mean of all processes' losses, in one exchange."""
        if self.size == 1:
            return
        import torch

        gradients = [p.grad for p in parameters if p.grad is not None]
        mean = _reduced(torch.cat([g.flatten() for g in gradients])) / self.size
        for gradient, new in zip(
            gradients, mean.split([g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(new.view_as(gradient))


ALONE = Team()
_entered = [ALONE]


def current() -> Team:
    """Whose the rows at hand are: the team inside `with team:`, else this process alone."""
    return _entered[-1]


def part(make: Callable[..., T], shape: Sequence[int], dim: int = 0, **settings: Any) -> T:
    """This process's part, of that shape, of what `make(shape, **settings)` makes for the whole batch."""
    team, whole = current(), list(shape)
    whole[dim] *= team.size
    return team.mine(make(tuple(whole), **settings), dim)


def randn_like(x: Tensor) -> Tensor:
    """Normal noise for the rows of a batch, in one process or several."""
    import torch

    return part(torch.randn, x.shape, dtype=x.dtype, device=x.device)


def each(
    state: dict[str, Any], names: Sequence[str], change: Callable[[Any], Any]
) -> dict[str, Any]:
    """The entries of these names, at any depth, changed."""
    return {
        name: each(value, names, change)
        if isinstance(value, dict)
        else change(value)
        if name in names
        else value
        for name, value in state.items()
    }


def size() -> int:
    """How many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1


def rank() -> int:
    """Which of them this is."""
    return int(os.environ["RANK"]) if size() > 1 else 0


@contextmanager
def join() -> Iterator[Team]:
    """The processes that torchrun has started, connected; without it, this process alone."""
    if size() == 1:
        yield ALONE
        return
    import torch
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Team(rank(), size())
        with _talking():
            dist.barrier()  # torchrun ends the others when one leaves: let all be done
    finally:
        dist.destroy_process_group()


def check(config: TrainConfig) -> None:
    """A run on several processes must split evenly."""
    count, rows = size(), config.minibatch_envs * config.rollout_steps
    if config.num_envs % count:
        raise ConfigError(
            f"num_envs={config.num_envs} does not split over {count} processes; use a multiple of {count}"
        )
    if rows % count:
        raise ConfigError(
            f"minibatch_envs={config.minibatch_envs} with rollout_steps={config.rollout_steps} makes minibatches of {rows}, "
            f"which do not split over {count} processes; use a multiple of {count} for either"
        )
    pools = pools_of(config.env, config.num_envs)
    if pools_of(config.env, config.num_envs // count) != pools:
        raise ConfigError(
            f"num_envs={config.num_envs} on {count} processes does not split into the {pools} pools in which emulators "
            f"step; use a multiple of {pools * count}"
        )
    if count > 1 and config.engine == "fast":
        raise ConfigError(
            "engine=fast: CUDA graphs are for one process; leave --engine out with several"
        )
    if count > 1 and ":" in config.device:
        raise ConfigError(
            f"device={config.device}: several processes take a GPU each; use --device cuda"
        )


def _reduced(x: Tensor) -> Tensor:
    import torch.distributed as dist

    x = x.contiguous().clone()
    with _talking():
        dist.all_reduce(x)
    return x


@contextmanager
def _talking() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = (
            str(error).split("] ", 1)[-1].split(". ")[0].splitlines()[0]
        )  # without the place in the C++ code
        raise TrainingError(
            f"process {rank()} of {size()} has lost the others ({reason})"
        ) from None
