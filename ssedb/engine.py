"""How the same maths runs fast: the device and the machine around it.

Nothing here changes what is computed, but for the rounding of a chosen precision. `Engine` makes the trainer's functions
ready (recorded as CUDA graphs) and lets the bonus model learn while the next rollout is played; `Bridge` carries arrays
between host and GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
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
        raise ConfigError(
            f"device={name!r}: torch {torch.__version__} sees no GPU here; use --device cpu"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={name!r}: torch sees {torch.cuda.device_count()} GPUs, numbered from 0; use one of them"
        )
    if device.type == "cuda" and parallel.size() > 1:
        number, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if number >= gpus:
            raise ConfigError(
                f"process {number + 1} of this machine finds {gpus} GPUs; start one process for each"
            )
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
            return next(
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):  # not Linux, or another kind of processor
        return platform.processor() or platform.machine()


def memory(device: torch.device) -> int:
    """Bytes that it has in all; of a CPU, as far as the system tells."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else sys.maxsize
    )


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


class Engine:
    """How a trainer's functions run on its device.

    The bonus model learns *aside*: on a GPU on a stream of its own, with randomness of its own, so that it may go on while
    the policy plays the next rollout. Their weights are disjoint and the bonus chooses no actions, so the numbers are those
    of one after the other, and `join` is waited for before the next bonus is paid. On a CPU everything happens in turn.
    """

    def __init__(
        self, device: torch.device, *, fast: bool, overlap: bool, precision: str, seed: int
    ) -> None:
        self.device, self.fast, self.overlaps, self.precision = (
            device,
            fast,
            overlap and fast,
            precision,
        )
        self._recorders: dict[bool, Replayer] = {}  # by whether it runs aside
        if device.type == "cuda":
            other = int(
                np.random.SeedSequence(seed).generate_state(1)[0]
            )  # or both generators would draw the same numbers
            self._generator = torch.Generator(device).manual_seed(other)
            self._stream = (
                torch.cuda.Stream(device) if self.overlaps else torch.cuda.current_stream(device)
            )
            # Graphs of one pool share memory and so must not run at the same time.
            self._recorders = {
                True: Replayer(),
                False: Replayer(priority=-1),
            }  # play goes before what runs aside

    def ready(
        self,
        function: F,
        *,
        aside: bool = False,
        replayable: bool = True,
        generators: Sequence[torch.Generator] = (),
    ) -> F:
        """The function as it is to be called; `aside` if it will be called there. Names the generators it draws from."""

        @functools.wraps(function)
        def precise(*args: Any, **kwargs: Any) -> Any:
            with _computing(self.precision, self.fast, self.device):
                return function(*args, **kwargs)

        if not (self.fast and replayable):
            return precise  # type: ignore[return-value]
        return self._recorders[aside](precise, generators)  # type: ignore[return-value]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is called here runs beside what is called after it; it begins when all that was called before is done."""
        if self.device.type != "cuda":
            yield
            return
        number = torch.cuda.current_device() if self.device.index is None else self.device.index
        default = torch.cuda.default_generators[number]
        randomness = default.graphsafe_get_state()
        default.graphsafe_set_state(self._generator.graphsafe_get_state())
        try:
            with self.beside():
                yield
        finally:
            default.graphsafe_set_state(randomness)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """The same, in any thread, for what draws nothing at random."""
        if self.device.type != "cuda":
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is called from now on begins when all that runs aside is done."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def state_dict(self) -> dict[str, Any]:
        if self.device.type != "cuda":
            return {}
        return {"cuda": torch.cuda.get_rng_state(self.device), "aside": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (
            self.device.type == "cuda" and state
        ):  # a run that comes from a CPU has no such randomness yet
            torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)
            self._generator.set_state(state["aside"].cpu())


def is_fast(name: str, device: torch.device) -> bool:
    """Whether to record and replay: `auto` does so on a GPU."""
    if name == "fast" and device.type != "cuda":
        raise ConfigError(
            "engine=fast: it replays CUDA graphs and needs a GPU; use --engine auto or eager"
        )
    return name != "eager" and device.type == "cuda"


@dataclass(frozen=True)
class _How:
    """How the code that runs now is to compute."""

    convolutions: torch.dtype = torch.float32
    fused: bool = False


_PLAIN = _How()
_how = ContextVar("how", default=_PLAIN)


@contextmanager
def _computing(precision: str, fused: bool, device: torch.device) -> Iterator[None]:
    """On a GPU: `fp32`, `tf32`, or `bf16` for convolutions with `tf32` for all other products. A CPU computes in fp32, and
    so does a GPU that has no such units."""
    if device.type != "cuda":
        yield
        return
    halves = precision == "bf16" and torch.cuda.get_device_capability(device) >= (8, 0)
    before = _how.set(_How(torch.bfloat16 if halves else torch.float32, fused))
    try:
        with _tf32(precision != "fp32"):
            yield
    finally:
        _how.reset(before)


def image_dtype() -> torch.dtype:
    """What convolutions take in."""
    return _how.get().convolutions


@contextmanager
def convolving() -> Iterator[None]:
    """Convolutions called here take part in the chosen precision."""
    if image_dtype() is torch.float32:
        yield
        return
    with torch.autocast(
        "cuda", image_dtype(), cache_enabled=False
    ):  # graphs must not share what is cached
        yield


def fuses() -> bool:
    """Whether `fused` functions are compiled here."""
    return _how.get().fused


def fused(function: F) -> F:
    """A function of tensors, elementwise or a few sums, that the fast engine compiles into one kernel or a few."""
    compiled: Any = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        if not fuses():
            return function(*args, **kwargs)
        if compiled is None:
            # One for each kind of call; and a number that changes is no reason to make one for all numbers, which may go
            # wrong unnoticed (https://github.com/pytorch/pytorch/issues/194976).
            careful = torch._dynamo.config.patch(recompile_limit=64, specialize_float=True)
            compiled = careful(torch.compile(function))
        try:
            return compiled(*args, **kwargs)
        except (
            torch._dynamo.exc.TorchDynamoException
        ) as error:  # no Triton here, or no C compiler for it
            warnings.warn(
                f"{function.__name__} is not compiled: {str(error).splitlines()[0]}", stacklevel=2
            )
            compiled = function
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def exact(function: F) -> F:
    """A function that computes in float32 whatever the precision around it (its gradient is computed in that)."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_available():
            return function(*args, **kwargs)
        with _tf32(False):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


_one_at_a_time = (
    threading.RLock()
)  # for what is the whole process's: precision, and the device while a graph is recorded


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    matmul, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    with _one_at_a_time:
        before = matmul.allow_tf32, convolutions.allow_tf32
        matmul.allow_tf32 = convolutions.allow_tf32 = allowed
        try:
            yield
        finally:
            matmul.allow_tf32, convolutions.allow_tf32 = before


class Bridge:
    """Arrays between the host and a device, through memory that stays in its place; on a CPU nothing is copied.

    The same kinds of arrays each time. What was put goes up while the host goes on, so the next may be put only when
    something has landed that was lowered after that.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory: Tensor | None = None
        self._down: Tensor | None = None

    def put(self, *arrays: np.ndarray) -> None:
        """Into the memory that goes up."""
        if self.device.type != "cuda":
            self._up = [torch.from_numpy(array) for array in arrays]
            return
        if self._memory is None:
            ends = np.cumsum(
                [0, *(-(-array.nbytes // 16) * 16 for array in arrays)]
            ).tolist()  # where any number may begin
            given = [torch.from_numpy(array) for array in arrays]
            self._kinds = [
                (begin, x.nbytes, x.dtype, x.shape) for begin, x in zip(ends, given, strict=False)
            ]
            self._memory = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=True)
            self._places = [part.numpy() for part in self._parts_of(self._memory)]
            self._above = torch.empty(ends[-1], dtype=torch.uint8, device=self.device)
            self._up = [lasting(part) for part in self._parts_of(self._above)]
        for place, array in zip(self._places, arrays, strict=True):
            np.copyto(place, array)  # torch would use threads, which the emulators keep waiting

    def up(self) -> list[Tensor]:
        """What was put, on the device, in one crossing that nobody waits for; good until the next."""
        if self._memory is not None:
            self._above.copy_(self._memory, non_blocking=True)
        return self._up

    def _parts_of(self, memory: Tensor) -> list[Tensor]:
        return [
            memory[begin : begin + size].view(dtype).view(shape)
            for begin, size, dtype, shape in self._kinds
        ]

    def lower(self, tensor: Tensor) -> None:
        """Begins to bring a tensor to the host."""
        if self.device.type != "cuda":
            self._down = tensor
            return
        if self._down is None:
            self._down, self._event = (
                torch.empty_like(tensor, device="cpu", pin_memory=True),
                torch.cuda.Event(),
            )
        self._down.copy_(tensor, non_blocking=True)
        self._event.record(torch.cuda.current_stream(self.device))

    def clear(self) -> None:
        """Waits until nothing is on its way."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def landed(self) -> np.ndarray:
        """What was lowered, as soon as it is there; good until the next is."""
        assert self._down is not None
        if self.device.type == "cuda":
            self._event.synchronize()
        return self._down.numpy()


def lasting(tensor: Tensor) -> Tensor:
    """Marks a tensor that is given again and again and stays in its place: recordings read it there."""
    tensor.lasts = True  # type: ignore[attr-defined]
    return tensor


def lasts(tensor: Tensor) -> bool:
    """Whether it is so marked; what comes next may then come to its place."""
    return getattr(tensor, "lasts", False)


class Replayer:
    """Makes functions that are recorded as CUDA graphs once they have run a few times, and replayed from then on.

    Such a function takes tensors (and plain values by name; each set of those, and each `lasting` tensor, gets a recording
    of its own), reads and writes tensors that stay in their place, and waits for nothing on the host. What it returns is a
    copy. The first calls with tensors of some shapes are real ones, so the numbers are those of the plain function.
    """

    WARM_UP = 3

    def __init__(self, priority: int = 0) -> None:
        self.pool = (
            torch.cuda.graph_pool_handle()
        )  # shared: graphs run one after the other, and their results are copied
        self.stream = torch.cuda.Stream(
            priority=priority
        )  # recording needs one of its own, and so do the calls before it

    def __call__(self, function: F, generators: Sequence[torch.Generator] = ()) -> F:
        recordings: dict[Any, _Recording] = {}
        calls: Counter[Any] = Counter()

        def call(*args: Tensor, **kwargs: Any) -> Any:
            key = (*(id(arg) if lasts(arg) else arg.shape for arg in args), *sorted(kwargs.items()))
            if (recording := recordings.get(key)) is None:
                shapes = tuple(arg.shape for arg in args)
                calls[shapes] += 1
                if calls[shapes] <= self.WARM_UP:
                    return self._plainly(functools.partial(function, *args, **kwargs))
                recording = _Recording(
                    functools.partial(function, **kwargs), args, generators, self
                )
                recordings[key] = recording
            return recording(args)

        return call  # type: ignore[return-value]

    def _plainly(self, call: Callable[[], Any]) -> Any:
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            result = call()
        current.wait_stream(self.stream)
        return _copy(result)


class _Recording:
    """One CUDA graph and the tensors it reads and writes."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Tensor],
        generators: Sequence[torch.Generator],
        replayer: Replayer,
    ) -> None:
        self.inputs = [arg if lasts(arg) else arg.clone() for arg in args]
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        # Threads that wait for actions may go on meanwhile: that is no error.
        recording = torch.cuda.graph(
            self.graph, replayer.pool, replayer.stream, capture_error_mode="thread_local"
        )
        with _one_at_a_time, recording:
            self.result = function(*self.inputs)

    def __call__(self, args: Sequence[Tensor]) -> Any:
        changing = [i for i, place in enumerate(self.inputs) if place is not args[i]]
        if changing:
            torch._foreach_copy_([self.inputs[i] for i in changing], [args[i] for i in changing])
        self.graph.replay()
        return _copy(self.result)


def _copy(result: Any) -> Any:
    """A tensor, or a tuple or dict of them, that the next replay does not overwrite."""
    if result is None:
        return None
    if isinstance(result, Tensor):
        return result.clone()
    if isinstance(result, tuple):
        return tuple(value.clone() for value in result)
    return dict(
        zip(result, torch.stack(list(result.values())).unbind(), strict=True)
    )  # figures: one copy for all
