"""The plain engine, the reference: every step and all background work runs immediately."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ssedb.engine.distributed import ALONE, Group
from ssedb.engine.precision import Precision

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")


class Task(Generic[T]):
    """Work in the background, and the result that is made when all of it is done."""

    def __init__(self, work: Iterator[object], result: Callable[[], T], engine: Engine) -> None:
        self._work = work
        self._make_result = result
        self._engine = engine
        self._result: Callable[[], T] | None = None
        self.waited = False

    def advance(self) -> None:
        """Do one more piece of the work; after the last, begin to make the result."""
        if self._result is not None:
            return
        with self._engine.in_background():
            for _ in self._work:
                return
        self._result = self._engine.later(self._make_result)

    def wait(self) -> T:
        """Do what is left; return the result. What is called after it runs after all the work."""
        while self._result is None:
            self.advance()
        result = self._result()  # may have run in the background, too
        self._engine.wait_for_background()
        self.waited = True
        return result


class Engine:
    """The plain engine: eager on one device, one thing after the other."""

    uses_graphs = False
    """Whether capturable steps are captured as CUDA graphs and replayed."""
    overlaps = False
    """Whether background work is done while environments step."""
    fuse = False
    """Whether functions given to `compile` are compiled."""

    def __init__(
        self,
        device: torch.device,
        *,
        precision: str = "fp32",
        seed: int = 0,
        own_draws: bool = False,
        guest: bool = False,
        group: Group = ALONE,
    ) -> None:
        """Set up a device.

        Args:
            device: where tensors live.
            precision: `fp32`, `tf32` or `bf16`; see `Precision`.
            seed: of the generator that background work draws from.
            own_draws: whether background work has a generator of its own on a CPU. On a GPU it
                always has, so that an engine which overlaps it draws the same numbers.
            guest: whether torch's generators are someone else's, and not in the state.
            group: the processes that share the run.
        """
        self.device = device
        self.group = group
        self.precision = Precision(precision, device)
        self._guest = guest
        self._generator: torch.Generator | None = None
        if device.type == "cuda" or own_draws:
            # Another seed, or both generators would draw the same numbers.
            seeds = np.random.SeedSequence(seed).generate_state(group.rank + 1)
            self._generator = torch.Generator(device).manual_seed(int(seeds[group.rank]))

    # The verbs of a training loop.

    def prepare(self, module: M) -> M:
        """Place a module on the device and set the precision it computes in."""
        module.to(self.device)
        self.precision.set(module, self.fuse)
        return module

    def wrap(
        self,
        step: F,
        *,
        background: bool = False,
        capturable: bool = True,
        generators: Sequence[torch.Generator] = (),
    ) -> F:
        """Return a function that runs a step in the engine's precision, perhaps as a CUDA graph.

        Args:
            step: function of tensors, and by name of objects whose tensors stay in their place. It
                returns None, a tensor, a tuple of tensors, or a dict of scalars of one type.
            background: whether background work calls the step, while others may run.
            capturable: whether a CUDA graph may hold the step: the step waits for nothing on the
                host, and no shape depends on data.
            generators: generators that the step draws from, other than torch's.
        """
        if self.device.type != "cuda":
            return step

        @functools.wraps(step)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.precision.products():
                return step(*args, **kwargs)

        return call  # type: ignore[return-value]

    def background(self, work: Iterator[object], result: Callable[[], T]) -> Task[T]:
        """Do work, and then make the result of the task: here at once.

        Args:
            work: does one piece each time it is advanced.
            result: called once after the last piece; draws nothing at random.
        """
        task = Task(work, result, self)
        task.wait()
        return task

    def idle(self) -> None:
        """Do a piece of background work while environments step; collectors call it each step."""

    def close(self) -> None:
        """Let go of threads."""

    def synchronize(self) -> None:
        """Wait until the device has nothing left to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # What modules and several processes need.

    def compile(self, function: F) -> F:
        """Return a faster form of a function of tensors; this engine returns it unchanged."""
        return function

    def adam(self, module: nn.Module, rate: float, eps: float) -> torch.optim.Adam:
        """Make the optimizer of a module's trained parameters."""
        trained = [p for p in module.parameters() if p.requires_grad]
        if not trained:  # an optimizer needs something to hold
            trained = [nn.Parameter(torch.zeros(1, device=self.device))]
        return torch.optim.Adam(trained, lr=rate, eps=eps, fused=True, capturable=self.uses_graphs)

    def adopt(self, adam: torch.optim.Adam) -> None:
        """Let an optimizer step as this engine needs it, whatever engine saved its state."""
        for group in adam.param_groups:
            group["capturable"] = self.uses_graphs

    def mean(self, values: Tensor) -> Tensor:
        """Average over the processes."""
        return self.group.all_reduce(values) / self.group.size

    # What a task is made of.

    def in_background(self) -> AbstractContextManager[None]:
        """Run a block as part of background work, with its generator."""
        if self._generator is None:
            return nullcontext()
        draws = _drawing_on_gpu if self.device.type == "cuda" else _drawing_on_cpu
        return draws(self._generator)

    def later(self, function: Callable[[], T]) -> Callable[[], T]:
        """Run a function that may wait for the device; return a getter of its result."""
        result = function()
        return lambda: result

    def wait_for_background(self) -> None:
        """Let what is called from now on begin when all background work is done."""

    def state_dict(self) -> dict[str, Any]:
        """Return the random states that are not torch's on a CPU."""
        state = {} if self._generator is None else {"background": self._generator.get_state()}
        if self.device.type == "cuda" and not self._guest:
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load random states; a run from another kind of device has none for this one."""
        generator, saved = self._generator, state.get("background")
        # Generators of another kind of device have states of another size.
        if generator is None or saved is None or len(saved) != len(generator.get_state()):
            return
        generator.set_state(saved.cpu())
        if "cuda" in state and not self._guest:
            torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)


@contextmanager
def _drawing_on_gpu(generator: torch.Generator) -> Iterator[None]:
    """Let torch's generator of a GPU share the state of another one, as CUDA graphs allow."""
    index = generator.device.index
    default = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
    before = default.graphsafe_get_state()
    default.graphsafe_set_state(generator.graphsafe_get_state())
    try:
        yield
    finally:
        default.graphsafe_set_state(before)


@contextmanager
def _drawing_on_cpu(generator: torch.Generator) -> Iterator[None]:
    """Let torch's generator draw the numbers of another one."""
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)
