"""Captured steps and transfers, as far as a CPU can show them; the rest is in test_gpu.py."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from ssedb.engine.cuda import CapturedStep, GraphPool, Transfer

CPU = torch.device("cpu")


def test_transfer_on_a_cpu_copies_nothing():
    transfer, frames = Transfer(CPU), np.arange(6, dtype=np.uint8).reshape(2, 3)
    transfer.stage(frames)
    transfer.upload()
    (there,) = transfer.uploaded
    assert torch.equal(there, torch.arange(6, dtype=torch.uint8).view(2, 3))
    frames[0, 0] = 9
    assert there[0, 0] == 9
    transfer.download(torch.tensor([3, 1]))
    assert transfer.downloaded().tolist() == [3, 1]


class Tape:
    """Stands in for a CUDA graph: keeps the call that is captured, and repeats it in its place."""

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
def tapes(monkeypatch):
    """CUDA graphs that are tapes, on a CPU."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    for name in ("graph_pool_handle", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *args, **kwargs: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    made = []

    def capture(graph, pool, stream, capture_error_mode):
        made.append(graph)
        return graph

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return made


def test_captured_step_copies_tensors_and_reads_objects_in_place(tapes):
    def add(a, place, factor=1):
        result = factor * (place.x + a)
        Tape.calls.append((partial(add, place=place, factor=factor), (a,), result))
        return result

    step = CapturedStep(add, GraphPool(), ())
    results = []
    places = [type("Place", (), {"x": torch.zeros(2)})() for _ in range(2)]
    for number in range(20):
        place = places[number % 2]
        place.x.fill_(number)
        factor = 1 + number % 3
        results.append(step(torch.full((2,), number / 4), place=place, factor=factor))
        assert results[-1].tolist() == [factor * 1.25 * number] * 2
        assert len(tapes) <= max(0, number - 2)  # three calls are eager
    assert len(tapes) == 6  # for each place and each factor
    expected = [(1 + n % 3) * 1.25 * n for n in range(20)]
    assert [result[0].item() for result in results] == expected  # they are copies
    for place in places:
        place.x = torch.zeros(3)
    step(torch.zeros(3), place=places[0])
    assert len(tapes) == 6, "other shapes have eager calls of their own"
