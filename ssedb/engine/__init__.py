"""Engines: device, precision, CUDA graphs, side stream, several processes.

Nothing here imports reinforcement learning, and nothing here changes what is computed, but for the
rounding of a chosen precision. `base.Engine` is plain and the reference; every other engine
reproduces its numbers. Importing this package imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssedb.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from ssedb.engine.base import Engine
    from ssedb.engine.distributed import Group


def require_engine(name: str, device: torch.device) -> None:
    """Raise ConfigError if the engine of that name does not run on a device."""
    if name == "fast" and device.type != "cuda":
        raise ConfigError(
            "engine=fast: it replays CUDA graphs and needs a GPU; use --engine auto or eager"
        )


def make_engine(
    device: torch.device,
    name: str = "auto",
    *,
    precision: str = "fp32",
    seed: int = 0,
    overlap: bool = False,
    group: Group | None = None,
) -> Engine:
    """Choose the engine for a device.

    Args:
        device: where tensors live.
        name: `auto`, `eager` (the plain engine) or `fast` (CUDA graphs, which need a GPU).
        precision: `fp32`, `tf32` or `bf16`; a CPU computes in fp32.
        seed: of the randomness that background work draws from on a GPU.
        overlap: whether background work may be done while environments step, on a GPU.
        group: the processes that share a run, if there are several.
    """
    from ssedb.engine.base import Engine
    from ssedb.engine.cuda import CudaEngine
    from ssedb.engine.data_parallel import DataParallelEngine

    require_engine(name, device)
    if group is not None and group.size > 1:
        return DataParallelEngine(device, precision=precision, seed=seed, group=group)
    if name == "eager" or device.type != "cuda":
        return Engine(device, precision=precision, seed=seed)
    return CudaEngine(device, precision=precision, seed=seed, overlap=overlap)
