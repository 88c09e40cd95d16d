"""The engine for a GPU: steps replayed as CUDA graphs, background work on a side stream."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ssedb.compiled import compiled
from ssedb.engine.overlap import OverlappingEngine
from ssedb.engine.precision import torch_lock

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class CudaEngine(OverlappingEngine):
    """Engine that replays steps as CUDA graphs, with background work on a side stream."""

    uses_graphs = True
    fuse = True

    def __init__(
        self, device: torch.device, *, precision: str = "fp32", seed: int = 0, overlap: bool = False
    ) -> None:
        super().__init__(device, precision=precision, seed=seed, overlap=overlap)
        current = torch.cuda.current_stream(device)
        self._side_stream = torch.cuda.Stream(device) if overlap else current
        # Graphs that share memory must not run at the same time: those of the side stream have a
        # pool of their own. Steps that environments wait for go first.
        self._graphs = GraphPool(priority=-1)
        self._side_graphs = GraphPool()

    def wrap(
        self,
        step: F,
        *,
        background: bool = False,
        capturable: bool = True,
        generators: Sequence[torch.Generator] = (),
    ) -> F:
        """Return a step that is captured as a CUDA graph after a few eager calls, and replayed."""
        eager = super().wrap(step)
        if not capturable:
            return eager
        pool = self._side_graphs if background else self._graphs
        return CapturedStep(eager, pool, generators)  # type: ignore[return-value]

    def compile(self, function: F) -> F:
        """Compile a function of tensors into one kernel or a few."""
        return compiled(function) if self.fuse else function

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Run a block on the side stream, once all that was called before is done."""
        self._side_stream.wait_stream(torch.cuda.current_stream(self.device))
        with super().in_background(), torch.cuda.stream(self._side_stream):
            yield

    def later(self, function: Callable[[], T]) -> Callable[[], T]:
        """Call a function on the worker thread and on the side stream, after all work."""

        def call() -> T:
            with torch.cuda.stream(self._side_stream):
                return function()

        return super().later(call)

    def wait_for_background(self) -> None:
        """Let the current stream wait for the side stream."""
        torch.cuda.current_stream(self.device).wait_stream(self._side_stream)


class GraphPool:
    """Memory and a stream that CUDA graphs share which run one after the other."""

    def __init__(self, priority: int = 0) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(priority=priority)  # capturing needs one of its own


class CapturedStep:
    """A step that is captured as a CUDA graph once it has run a few times, and replayed after.

    Tensors are copied to where the graph reads them. Objects given by name are read in their
    place, with a graph for each set of them. Results are copies. The first calls with tensors of
    some shapes are eager: libraries choose their algorithms and allocate what they need in them,
    which a capture must not hold.
    """

    WARM_UP = 3

    def __init__(
        self, step: Callable[..., Any], pool: GraphPool, generators: Sequence[torch.Generator]
    ) -> None:
        self._step = step
        self._pool = pool
        self._generators = generators
        self._graphs: dict[Any, _Graph] = {}
        self._calls: Counter[Any] = Counter()

    def __call__(self, *tensors: Tensor, **objects: Any) -> Any:
        """Run the step, or replay its graph for tensors of these shapes and these objects."""
        shapes = tuple(tensor.shape for tensor in tensors)
        key = (*shapes, *((name, objects[name]) for name in sorted(objects)))
        graph = self._graphs.get(key)
        if graph is None:
            step = functools.partial(self._step, **objects)
            self._calls[shapes] += 1
            if self._calls[shapes] <= self.WARM_UP:
                return self._call_eagerly(step, tensors)
            graph = self._graphs[key] = _Graph(step, tensors, self._generators, self._pool)
        return graph.replay(tensors)

    def _call_eagerly(self, step: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        current = torch.cuda.current_stream()
        self._pool.stream.wait_stream(current)
        with torch.cuda.stream(self._pool.stream):
            result = step(*tensors)
        current.wait_stream(self._pool.stream)
        return _copied(result)


class _Graph:
    """One CUDA graph, and the tensors it reads and writes."""

    def __init__(
        self,
        step: Callable[..., Any],
        tensors: Sequence[Tensor],
        generators: Sequence[torch.Generator],
        pool: GraphPool,
    ) -> None:
        self._inputs = [tensor.clone() for tensor in tensors]
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        mode = "thread_local"  # threads that wait for actions may go on meanwhile
        capturing = torch.cuda.graph(self._graph, pool.handle, pool.stream, capture_error_mode=mode)
        with torch_lock, _no_garbage_collected(), capturing:
            self._result = step(*self._inputs)
        # To begin a capture, torch zeroes the generators' offsets on the pool's stream. Unless that
        # is done first, it may undo the offsets that the first replay sets.
        torch.cuda.current_stream().wait_stream(pool.stream)

    def replay(self, tensors: Sequence[Tensor]) -> Any:
        if self._inputs:
            torch._foreach_copy_(self._inputs, list(tensors))
        self._graph.replay()
        return _copied(self._result)


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Keep Python from freeing the graphs of an old trainer, which would break a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _copied(result: Any) -> Any:
    """Copy a tensor, or a tuple or dict of them, so that the next replay does not overwrite it."""
    if result is None:
        return None
    if isinstance(result, Tensor):
        return result.clone()
    if isinstance(result, tuple):
        return tuple(value.clone() for value in result)
    return dict(zip(result, torch.stack(list(result.values())).unbind(), strict=True))


class Transfer:
    """Arrays between host and device through memory that stays in its place; a CPU copies nothing.

    Arrays have the same shapes each time. An upload goes on while the host continues. Stage the
    next arrays only after `downloaded` has returned for a download begun after the upload.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.uploaded: list[Tensor] = []
        """Arrays staged before the last upload, on the device; on a GPU always these tensors."""
        self._pinned: Tensor | None = None
        self._arrived: Tensor | None = None

    def stage(self, *arrays: np.ndarray) -> None:
        """Put arrays where they are uploaded from."""
        given = [torch.from_numpy(array) for array in arrays]
        if self.device.type != "cuda":
            self.uploaded = given
            return
        if self._pinned is None:
            self._allocate(given)
        for place, array in zip(self._staged, arrays, strict=True):
            np.copyto(place, array)  # torch would use threads, which the emulators keep waiting

    def _allocate(self, given: list[Tensor]) -> None:
        """Lay all arrays out in one block, each aligned so that any number may begin there."""
        sizes = [-(-tensor.nbytes // 16) * 16 for tensor in given]
        self._pinned = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
        self._on_device = torch.empty(sum(sizes), dtype=torch.uint8, device=self.device)

        def views(block: Tensor) -> list[Tensor]:
            pieces = zip(block.split(sizes), given, strict=True)
            return [piece[: x.nbytes].view(x.dtype).view(x.shape) for piece, x in pieces]

        self._staged = [view.numpy() for view in views(self._pinned)]
        self.uploaded = views(self._on_device)

    def upload(self) -> None:
        """Begin to copy what was staged to `uploaded`, where it is good until the next upload."""
        if self._pinned is not None:
            self._on_device.copy_(self._pinned, non_blocking=True)

    def download(self, tensor: Tensor) -> None:
        """Begin to copy a tensor to the host."""
        if self.device.type != "cuda":
            self._arrived = tensor
            return
        if self._arrived is None:
            self._arrived = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._event = torch.cuda.Event()
        self._arrived.copy_(tensor, non_blocking=True)
        self._event.record(torch.cuda.current_stream(self.device))

    def downloaded(self) -> np.ndarray:
        """Wait for what was downloaded; it is good until the next download."""
        assert self._arrived is not None
        if self.device.type == "cuda":
            self._event.synchronize()
        return self._arrived.numpy()
