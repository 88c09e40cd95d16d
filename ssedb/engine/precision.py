"""Precision of matrix products and convolutions; kernels that repeat to the bit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.utils.deterministic
from torch import nn

torch_lock = threading.RLock()
"""Lock of the thread that sets the TF32 switch, which the whole process shares, or captures a CUDA
graph."""


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in products on a GPU. Other threads wait to set the switch meanwhile."""
    matmul = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    with torch_lock:
        before = matmul.allow_tf32, convolutions.allow_tf32
        matmul.allow_tf32 = convolutions.allow_tf32 = allowed
        try:
            yield
        finally:
            matmul.allow_tf32, convolutions.allow_tf32 = before


@contextmanager
def deterministic_kernels() -> Iterator[None]:
    """Let torch add in the same order every time, in the whole process.

    An operation that torch cannot compute so raises RuntimeError, which names the operation.
    """
    # cuBLAS reads the variable at its first product; torch refuses products without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # may choose another kernel in the next process
    memory.fill_uninitialized_memory = False  # only slows down
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark
        memory.fill_uninitialized_memory = fill


class Precision:
    """Floats of products on a device: `fp32`, `tf32`, or `bf16`.

    `bf16` is for convolutions, with `tf32` for all other products. A CPU computes in fp32, and so
    do the convolutions of a GPU that has no bfloat16.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.tf32 = on_gpu and name != "fp32"
        halves = on_gpu and name == "bf16" and torch.cuda.get_device_capability(device) >= (8, 0)
        self.compute_dtype = torch.bfloat16 if halves else torch.float32
        self.on_gpu = on_gpu

    def set(self, module: nn.Module, fuse: bool) -> None:
        """Set the precision of every submodule that has an attribute `compute_dtype`.

        Args:
            module: the module; its submodules get `compute_dtype` and `fuse`.
            fuse: whether elementwise functions around the convolutions are compiled into one.
        """
        for submodule in module.modules():
            if hasattr(submodule, "compute_dtype"):
                submodule.compute_dtype = self.compute_dtype  # type: ignore[assignment]
                submodule.fuse = fuse  # type: ignore[assignment]

    def products(self) -> AbstractContextManager[None]:
        """Set torch's TF32 switch for the products of a block."""
        return tf32(self.tf32) if self.on_gpu else nullcontext()
