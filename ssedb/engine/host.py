"""The machine: devices by name, their memory, the allocator of the C library."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

import torch

from ssedb import __version__
from ssedb.engine import distributed
from ssedb.errors import ConfigError

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
# From CUDA's cuda.h.
_CU_CTX_SCHED_BLOCKING_SYNC = 4


def pick_device(name: str) -> torch.device:
    """Find a device by its name: `auto` is the GPU where there is one.

    Of several processes on a machine each takes a GPU of its own.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: torch {torch.__version__} sees no GPU here; use cpu")
    gpus = torch.cuda.device_count()
    if (device.index or 0) >= gpus:
        raise ConfigError(
            f"device={name!r}: torch sees {gpus} GPUs, numbered from 0; use one of them"
        )
    if distributed.size() > 1:
        number = int(os.environ.get("LOCAL_RANK", 0))
        if number >= gpus:
            raise ConfigError(
                f"process {number + 1} of this machine finds {gpus} GPUs; "
                "start one process for each"
            )
        return torch.device("cuda", number)
    return device


def machine(device: torch.device) -> dict[str, str]:
    """Describe the machine and the versions, for a run's summary."""
    return {
        "ssedb": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.split(":", 1)[1] for line in file if line.startswith("model name"))
            return next(names).strip()
    except (OSError, StopIteration):  # not Linux, or another kind of processor
        return platform.processor() or platform.machine()


def memory(device: torch.device) -> int:
    """Return the bytes that a device has in all; of a CPU, as far as the system tells."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def tune_allocator() -> bool:
    """Let glibc keep the memory that large tensors leave; return whether the machine has glibc.

    On a CPU a train step frees and asks again for the same hundreds of megabytes. Giving them back
    to the kernel and faulting them in again took more than half of the time.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def sleep_while_waiting() -> bool:
    """Let this process sleep while it waits for a GPU; return whether a driver did as asked.

    By default a process keeps a core busy until the GPU has answered. That is fastest for one
    process, and takes the cores away from the others that share the machine. Call this before torch
    uses a GPU.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return False
        set_flags = driver.cuDevicePrimaryCtxSetFlags_v2
    except (OSError, AttributeError):  # no driver, or a very old one
        return False
    failed = [set_flags(gpu, _CU_CTX_SCHED_BLOCKING_SYNC) for gpu in range(count.value)]
    return count.value > 0 and not any(failed)
