"""Precision of matrix products and convolutions."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from ssedb.float32 import tf32


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
