"""The plain engine on a CPU: steps as they are, updates at once, own draws if asked for."""

from functools import partial

import pytest
import torch
from torch import nn

from ssedb.engine import make_engine
from ssedb.engine.base import Engine
from ssedb.engine.data_parallel import DataParallelEngine
from ssedb.engine.distributed import ALONE
from ssedb.engine.overlap import OverlappingEngine
from ssedb.errors import ConfigError
from ssedb.networks import ActorCritic

CPU = torch.device("cpu")


def test_engine_on_a_cpu_computes_in_float32_without_capture():
    engine = make_engine(CPU, precision="bf16", overlap=True)
    policy = engine.prepare(ActorCritic((4, 36, 36), 4, (4, 4, 4), 8, ["relu"]))
    assert policy.trunk.compute_dtype is policy.normalize.compute_dtype is torch.float32
    assert not policy.trunk.fuse
    assert not engine.overlaps
    assert not engine.uses_graphs

    def step(x):
        return 2 * x

    assert engine.wrap(step) is step
    assert engine.compile(step) is step
    assert engine.state_dict() == {}
    engine.load_state_dict({"cuda": torch.zeros(1), "background": torch.zeros(1)})  # from a GPU


@pytest.mark.parametrize("uses_graphs", [False, True])
def test_adopted_optimizer_steps_as_the_engine_needs_it(uses_graphs):
    engine = Engine(CPU)
    engine.uses_graphs = uses_graphs
    adam = torch.optim.Adam(nn.Linear(2, 1).parameters())
    adam.param_groups[0]["capturable"] = not uses_graphs  # as another engine saved it
    engine.adopt(adam)
    assert [group["capturable"] for group in adam.param_groups] == [uses_graphs]


def test_prepare_sets_precision_on_every_module_that_asks():
    engine = Engine(CPU)
    engine.precision.compute_dtype = torch.bfloat16
    engine.fuse = True
    policy = engine.prepare(ActorCritic((4, 36, 36), 4, (4, 4, 4), 8, ["relu"]))
    for part in (policy.trunk, policy.normalize):
        assert part.compute_dtype is torch.bfloat16
        assert part.fuse
    assert not hasattr(policy.value, "compute_dtype")


def test_fast_engine_without_a_gpu_is_refused():
    with pytest.raises(ConfigError, match="engine=fast: it replays CUDA graphs and needs a GPU"):
        make_engine(CPU, "fast")


@pytest.fixture
def as_if_cuda(monkeypatch):
    """Let generators of the CPU stand in for those of a GPU; return the states set to torch's."""
    generator, torchs = torch.Generator, torch.arange(16, dtype=torch.uint8)
    set_to = []
    monkeypatch.setattr(torch, "Generator", lambda device: generator())
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: torchs)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: set_to.append(state))
    return set_to


@pytest.mark.parametrize("guest", [True, False])
def test_state_on_a_gpu_holds_torchs_generator_unless_the_engine_is_a_guest(guest, as_if_cuda):
    engine, other = (Engine(torch.device("cuda"), seed=seed, guest=guest) for seed in (0, 1))
    state = engine.state_dict()
    assert set(state) == {"background"} | ({"cuda"} if not guest else set())
    other.load_state_dict({"cuda": torch.arange(16, dtype=torch.uint8), **state})
    assert torch.equal(other.state_dict()["background"], state["background"])
    assert len(as_if_cuda) == (not guest)
    other.load_state_dict({"background": torch.zeros(16, dtype=torch.uint8)})  # of another device
    assert torch.equal(other.state_dict()["background"], state["background"])


@pytest.mark.parametrize(
    "kind",
    [
        Engine,
        partial(OverlappingEngine, overlap=False),  # whose worker thread would look for a GPU
        partial(DataParallelEngine, group=ALONE),
    ],
)
def test_state_of_every_engine_on_a_gpu_holds_torchs_generator(kind, as_if_cuda):
    engine = kind(torch.device("cuda"))
    engine.load_state_dict(engine.state_dict())
    assert len(as_if_cuda) == 1


def updates(log, count=3):
    for number in range(count):
        log.append((number, float(torch.rand(()))))
        yield


def test_background_runs_everything_at_once_with_torchs_generator():
    log = []
    torch.manual_seed(0)
    task = Engine(CPU).background(updates(log), result=lambda: len(log))
    assert task.waited
    assert task.wait() == 3
    torch.manual_seed(0)
    assert [number for _, number in log] == [float(torch.rand(())) for _ in range(3)]


@pytest.mark.parametrize("kind", [Engine, OverlappingEngine])
def test_own_draws_leave_torchs_generator_alone_and_continue_after_a_restore(kind):
    def make():
        return (
            Engine(CPU, seed=3, own_draws=True)
            if kind is Engine
            else OverlappingEngine(CPU, seed=3)
        )

    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second, log, again = make(), make(), [], []
    first.background(updates(log), result=lambda: None).wait()
    assert torch.equal(torch.get_rng_state(), before)
    second.load_state_dict(first.state_dict())
    for engine, drawn in ((first, log), (second, again)):
        engine.background(updates(drawn), result=lambda: None).wait()
    assert log[3:] == again
    assert log[:3] != again


def test_adam_of_a_module_without_parameters_is_made():
    assert len(Engine(CPU).adam(nn.Identity(), 1e-3, 1e-8).param_groups[0]["params"]) == 1
