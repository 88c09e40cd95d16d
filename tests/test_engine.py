"""How things run, as far as a CPU can show it; the rest is in test_gpu.py."""

import threading
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from ssedb import engine
from ssedb.engine import Bridge, Engine, Replayer
from ssedb.ppo import ppo_loss
from ssedb.runs.loop import train
from tests.toy import tiny_config

CPU = torch.device("cpu")


def test_a_cpu_computes_in_float32_and_in_turn():
    machine = Engine(CPU, fast=False, overlap=True, precision="bf16", seed=0)
    assert not machine.overlaps
    seen = machine.ready(lambda: (engine.image_dtype(), engine.fuses()))()
    assert seen == (torch.float32, False)
    with machine.aside():
        first = torch.rand(3)
    machine.join()
    assert machine.state_dict() == {}
    machine.load_state_dict(
        {"cuda": torch.zeros(1), "aside": torch.zeros(1)}
    )  # a run that comes from a GPU
    assert first.shape == (3,)


def test_the_fast_engine_needs_a_gpu():
    with pytest.raises(
        engine.ConfigError, match="engine=fast: it replays CUDA graphs and needs a GPU"
    ):
        engine.is_fast("fast", CPU)
    assert not engine.is_fast("auto", CPU)


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert engine.pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(
        engine.ConfigError,
        match="device='cuda:9': torch sees 2 GPUs, numbered from 0; use one of them",
    ):
        engine.pick_device("cuda:9")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(engine="fast"), "needs a GPU"),
        (
            dict(num_envs=10**8, minibatch_envs=10**6),
            r"num_envs=100000000: the frames of \d+ steps would take [\d,]+ GiB",
        ),
    ],
)
def test_asking_for_too_much_leaves_no_folder(tmp_path, settings, message):
    with pytest.raises(engine.ConfigError, match=message):
        train(tiny_config(tmp_path / "run", **settings))
    assert not (tmp_path / "run").exists()


def test_on_a_cpu_arrays_cross_without_a_copy():
    bridge, frames = Bridge(CPU), np.arange(6, dtype=np.uint8).reshape(2, 3)
    bridge.put(frames)
    (there,) = bridge.up()
    assert torch.equal(there, torch.arange(6, dtype=torch.uint8).view(2, 3))
    frames[0, 0] = 9
    assert there[0, 0] == 9
    bridge.lower(torch.tensor([3, 1]))
    assert bridge.landed().tolist() == [3, 1]


class Without:
    """A machine that cannot compile."""

    tried = 0

    def __call__(self, function):
        def fail(*args):
            self.tried += 1
            raise torch._inductor.exc.TritonMissing(None)

        return fail


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so_once(monkeypatch):
    import torch._inductor.exc

    @engine.fused
    def double(x):
        return 2 * x

    x, compiler = torch.ones(2), Without()
    monkeypatch.setattr(torch, "compile", compiler)
    assert torch.equal(double(x), 2 * x)
    assert compiler.tried == 0  # nobody asked for it
    token = engine._how.set(engine._How(torch.float32, True))
    try:
        with pytest.warns(UserWarning, match="double is not compiled"):
            assert torch.equal(double(x), 2 * x)
        assert torch.equal(double(x), 2 * x)
    finally:
        engine._how.reset(token)
    assert compiler.tried == 1


@pytest.mark.slow
def test_a_compiled_function_follows_every_number_it_is_given(monkeypatch):
    """torch.compile may make one kernel for all values of a float and keep the first in it."""
    monkeypatch.setattr(engine, "fuses", lambda: True)
    torch.manual_seed(0)
    given = torch.randn(64, 4), torch.randn(64), torch.randint(4, (64,)), *torch.randn(3, 64)
    for clip in (0.1, 0.2, 0.3, 0.4, 0.1):
        settings = {"clip": clip, "entropy_coef": clip / 10}
        loss, expected = (f(*given, **settings)[0] for f in (ppo_loss, ppo_loss.__wrapped__))
        torch.testing.assert_close(loss, expected)


def test_exact_functions_return_what_they_compute():
    @engine.exact
    def product(a, b):
        """A product."""
        return a @ b

    assert product.__doc__ == "A product."
    assert product(torch.eye(2), torch.ones(2)).tolist() == [1, 1]


def test_threads_that_compute_in_other_precisions_take_turns():
    flags = torch.backends.cuda.matmul
    before, entered = flags.allow_tf32, threading.Event()

    def other():
        with engine._tf32(False):
            entered.set()

    with engine._tf32(True):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
        assert flags.allow_tf32
    assert entered.wait(10)
    thread.join()
    assert flags.allow_tf32 == before


class Tape:
    """Stands in for a CUDA graph: keeps the call that is made while it records, and makes it again into the same place."""

    calls: ClassVar[list] = []

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        Tape.calls = []

    def __exit__(self, *error):
        self.function, self.args, self.result = Tape.calls[0]

    def replay(self):
        self.result.copy_(self.function(*self.args))


@pytest.fixture
def recorder(monkeypatch):
    """A Replayer whose graphs are tapes, on a CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name in ("graph_pool_handle", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *args, **kwargs: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    tapes = []

    def record(graph, pool, stream, capture_error_mode):
        tapes.append(graph)
        return graph

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", record)
    return Replayer(), tapes


def test_what_is_recorded_reads_lasting_tensors_in_their_place_and_copies_of_others(recorder):
    replayer, tapes = recorder

    def add(a, b, factor=1):
        result = factor * (a + b)
        Tape.calls.append((partial(add, factor=factor), (a, b), result))
        return result

    call, places = replayer(add), [engine.lasting(torch.zeros(2)) for _ in range(2)]
    results = []
    for number in range(20):
        place = places[number % 2]
        place.fill_(number)
        factor = 1 + number % 3
        results.append(call(place, torch.full((2,), number / 4), factor=factor))
        assert results[-1].tolist() == [factor * 1.25 * number] * 2
        assert len(tapes) <= max(0, number - 2)  # three calls are plain
    assert len(tapes) == 6  # for each place and each factor
    assert [result[0].item() for result in results] == [
        (1 + n % 3) * 1.25 * n for n in range(20)
    ]  # they are copies
    assert all(any(tape.args[0] is place for place in places) for tape in tapes)
    call(torch.zeros(3), torch.zeros(3))
    assert len(tapes) == 6, "other shapes have plain calls of their own"
