"""How the same maths runs fast: the device and the machine around it."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ssedb import __version__, parallel
from ssedb.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one; of several processes each takes its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device={name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: torch {torch.__version__} sees no GPU here; use --device cpu")
    if device.type == "cuda" and parallel.size() > 1:
        number, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if number >= gpus:
            raise ConfigError(f"process {number + 1} of this machine finds {gpus} GPUs; start one process for each")
        return torch.device("cuda", number)
    return device


def machine(device: torch.device) -> dict[str, str]:
    """What a run ran on, for its summary."""
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
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or another kind of processor
        return platform.processor() or platform.machine()


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


def is_fast(name: str, device: torch.device) -> bool:
    """Whether to record and replay: `auto` does so on a GPU."""
    if name == "fast" and device.type != "cuda":
        raise ConfigError("engine=fast: it replays CUDA graphs and needs a GPU; use --engine auto or eager")
    return name != "eager" and device.type == "cuda"


class Replayer:
    """Makes functions that are recorded as CUDA graphs once they have run a few times, and replayed from then on.

    Such a function takes tensors (and plain values by name, each set of which gets a recording of its own), reads and
    writes tensors that stay in their place, and waits for nothing on the host. What it returns is a copy. The first calls
    are real ones, so the numbers are those of the plain function.
    """

    WARM_UP = 3

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()  # shared: graphs run one after the other, and their results are copied

    def __call__(self, function: F) -> F:
        recordings: dict[Any, _Recording] = {}

        def call(*args: Tensor, **kwargs: Any) -> Any:
            key = (*(arg.shape for arg in args), *sorted(kwargs.items()))
            if key not in recordings:
                recordings[key] = _Recording(functools.partial(function, **kwargs))
            return recordings[key](args, self.pool)

        return call  # type: ignore[return-value]


class _Recording:
    """One CUDA graph and the tensors it reads and writes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, args: tuple[Tensor, ...], pool: Any) -> Any:
        self.calls += 1
        if self.calls <= Replayer.WARM_UP:
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()  # recording needs a stream of its own as well
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                result = self.function(*args)
            current.wait_stream(stream)
            return _copy(result)
        if self.graph is None:
            self.inputs = [arg.clone() for arg in args]
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=pool):
                self.result = self.function(*self.inputs)
        for mine, given in zip(self.inputs, args, strict=True):
            mine.copy_(given)
        self.graph.replay()
        return _copy(self.result)


def _copy(result: Any) -> Any:
    """A tensor, or a tuple or dict of them, that the next replay does not overwrite."""
    if isinstance(result, Tensor):
        return result.clone()
    if isinstance(result, tuple):
        return tuple(value.clone() for value in result)
    return dict(zip(result, torch.stack(list(result.values())).unbind(), strict=True))  # figures: one copy for all
