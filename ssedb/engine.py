"""How the same maths runs fast: the device and the machine around it."""

from __future__ import annotations

import ctypes
import sys

import torch

from ssedb.errors import ConfigError

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: torch {torch.__version__} sees no GPU here; use --device cpu")
    return device


def tune_allocator() -> bool:
    """Lets glibc keep the memory that large tensors leave, instead of giving it back page by page after each operation.

    On a CPU a training step frees and asks again for the same hundreds of megabytes; handing them to the kernel and
    faulting them in again took more than half of the time. Returns whether the machine has such an allocator.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
