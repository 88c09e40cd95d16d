"""What only a GPU can show. Run with `-m gpu`."""

import copy
import gc
import subprocess
import sys
import warnings

import pytest
import torch
from torch._dynamo.utils import counters

import ssedb
from ssedb import objectives
from ssedb.collect.environments import look_around
from ssedb.collect.rollout import STACK
from ssedb.engine.base import Engine
from ssedb.engine.cuda import CudaEngine
from ssedb.networks import ConvTrunk
from ssedb.noises import list_noises
from ssedb.normalize import FrameNorm, ObsNorm
from ssedb.ppo import ppo_loss
from ssedb.runs.loop import resume
from ssedb.runs.metrics import read_metrics
from ssedb.trainer import Trainer
from tests.faults.forks import last_state, numbers, same
from tests.toy import TINY_OPTIONS, Grid, tiny_config, transitions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_bonus_on_both_devices_is_the_same():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    bonus = ssedb.make_bonus("db", (4, 36, 36), 4, **TINY_OPTIONS)
    batch = transitions(Grid(16), 20)
    on_cpu = bonus.reward(*batch)
    on_gpu = bonus.cuda().reward(*(x.cuda() for x in batch))
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", list_noises())
def test_noise_on_a_gpu_keeps_its_contract(noise):
    from ssedb.testing.noises import check_noise

    failed = [
        (found.name, found.why) for found in check_noise(noise, "cuda") if found.outcome == "fail"
    ]
    assert failed == []


@pytest.mark.parametrize("noise", ["random-box", "pixel"])
def test_train_and_resume_on_a_gpu_work(tmp_path, noise):
    config = tiny_config(
        tmp_path / "run",
        noise=noise,
        fidelity="released",
        device="cuda",
        steps=512,
        obs_norm_steps=100,
    )
    assert ssedb.train(config).finished
    assert resume(tmp_path / "run", steps=1024).steps == 1024
    assert len(read_metrics(tmp_path / "run")) == 4


@pytest.mark.parametrize("env", ["breakout", "rooms-small"])
def test_run_moved_to_the_other_device_and_back_continues(tmp_path, env):
    config = tiny_config(
        tmp_path / "run", env=env, noise="clouds", device="cpu", steps=256, obs_norm_steps=100
    )
    assert ssedb.train(config).finished
    assert resume(tmp_path / "run", steps=512, device="cuda").steps == 512
    assert resume(tmp_path / "run", steps=768, device="cpu").steps == 768


def test_rooms_on_both_devices_are_the_same():
    from ssedb.envs.rooms.env import RoomsEnv

    here, there = RoomsEnv(64), RoomsEnv(64, device="cuda")
    assert torch.equal(here.reset(), there.reset().cpu())
    generator = torch.Generator().manual_seed(0)
    for _ in range(600):
        actions = torch.randint(5, (64,), generator=generator)
        first, second = here.step(actions), there.step(actions.cuda())
        assert torch.equal(first.frames, second.frames.cpu())
        assert torch.equal(first.rewards, second.rewards.cpu())
        assert torch.equal(first.dones, second.dones.cpu())
    assert here.metrics() == pytest.approx(there.metrics())


@pytest.mark.parametrize("raw", [False, True])
def test_emulators_on_a_gpu_give_the_same_steps(raw):
    from ssedb.envs.atari import AtariEnv

    here, there = (
        AtariEnv("breakout", 6, seed=3, raw=raw, device=device) for device in ("cpu", "cuda")
    )
    assert torch.equal(here.reset(), there.reset().cpu())
    generator = torch.Generator().manual_seed(0)
    ends = 0
    for _ in range(300):
        actions = torch.randint(4, (6,), generator=generator)
        first, second = here.step(actions), there.step(actions.cuda())
        for name in ("frames", "rewards", "dones"):
            assert torch.equal(getattr(first, name), getattr(second, name).cpu()), name
        ends += int(first.dones.sum())
    assert ends > 3
    here.close()
    there.close()


@pytest.mark.parametrize("noise", ["none", "random-box"])
def test_step_tensors_on_a_gpu_stay_unchanged(noise):
    env = ssedb.make_env("breakout", 2, noise=noise, fidelity="released", device="cuda", seed=3)
    frames = [env.reset()]
    kept = [frames[0].clone()]
    for _ in range(5):
        frames.append(env.step([1, 3]).frames)
        kept.append(frames[-1].clone())
    env.close()
    assert all(torch.equal(a, b) for a, b in zip(frames, kept, strict=True))
    assert not torch.equal(kept[1], kept[5])


def test_maps_and_episodes_on_a_gpu_work(tmp_path):
    pytest.importorskip("scipy")
    from ssedb.analysis.episode import record_episode, trace_bonus
    from ssedb.runs.metrics import read_log

    run = tmp_path / "run"
    ssedb.train(
        tiny_config(
            run, env="rooms-small", noise="random-box", device="cuda", steps=512, obs_norm_steps=64
        )
    )
    assert [row["steps"] for row in read_log(run / "maps.jsonl").rows] == [0, 256, 512]
    episode = record_episode(run, device="cuda")
    here, there = trace_bonus(episode, run, "cpu"), trace_bonus(episode, run, "cuda")
    torch.testing.assert_close(
        torch.tensor(there.bonus), torch.tensor(here.bonus), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("options", [{}, {"bonus": "e3b", "bonus_options": {"slots": 8}}])
def test_probe_on_a_gpu_works(tmp_path, options):
    pytest.importorskip("matplotlib")
    from ssedb.analysis.probe import probe_run

    ssedb.train(
        tiny_config(
            tmp_path / "run",
            env="rooms-small",
            noise="random-box",
            device="cuda",
            steps=256,
            obs_norm_steps=64,
            **options,
        )
    )
    result, picture = probe_run(tmp_path / "run", transitions=256, draws=3)
    assert 0 <= result.bonus_noise_share <= 1
    assert picture.exists()


@pytest.fixture
def exact(monkeypatch):
    """Compute every number by the same kernel, with its sums in the same order, each time.

    Compiled kernels round otherwise, and Adam makes a step of a gradient that is nothing but
    rounding; they are compared for themselves.
    """
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(CudaEngine, "fuse", False)


SETTINGS = {
    # Episodes end within a rollout.
    "rooms": dict(env="rooms-small", preset="rooms", noise="random-box", max_episode_steps=20),
    "raw frames": dict(
        env="breakout", preset="rooms", noise="random-box", fidelity="released", bonus_epochs=2
    ),
    "clouds": dict(env="breakout", preset="rooms", noise="clouds"),
    "sticky": dict(env="breakout", preset="rooms", noise="sticky"),
    "television": dict(env="rooms-small", preset="rooms", noise="noisy-tv"),
}


def trainer_of(out, **settings) -> Trainer:
    """In float32, so that two ways of computing differ by rounding alone."""
    usual = dict(bonus_options={}, device="cuda", precision="fp32", obs_norm_steps=64)
    config = tiny_config(out, **{**usual, **settings})
    trainer = Trainer(config)
    trainer.fit_observations(look_around(config))
    return trainer


def same_numbers(rows, others) -> None:
    for row, other in zip(rows, others, strict=True):
        known = {k: v for k, v in row.items() if k != "sps" and v is not None}
        assert {k: v for k, v in other.items() if k != "sps" and v is not None} == pytest.approx(
            known, rel=1e-6
        )


def weights(trainer: Trainer) -> dict:
    return {**trainer.policy.state_dict(), **trainer.bonus.state_dict()}


def same_weights(first: dict, second: dict) -> None:
    for name, value in first.items():
        torch.testing.assert_close(
            second[name], value, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    ("bonus", "kind"),
    [
        *((bonus, "rooms") for bonus in ssedb.list_bonuses()),
        ("db", "raw frames"),
        ("rnd", "clouds"),
        ("rnd", "sticky"),
        ("rnd", "television"),
    ],
)
def test_cuda_engine_matches_the_plain_one(exact, tmp_path, bonus, kind):
    plain = trainer_of(tmp_path, bonus=bonus, engine="eager", **SETTINGS[kind])
    rows = [plain.iterate() for _ in range(8)]
    fast = trainer_of(tmp_path, bonus=bonus, engine="fast", **SETTINGS[kind])  # takes over the seed
    assert fast.engine.overlaps == fast.env.on_host
    # The bonus model is updated while the next rollout is collected.
    found = [fast.iterate() for _ in range(8)] + [fast.finish()]
    same_numbers(rows, [row for row in found if row is not None])
    same_weights(weights(plain), weights(fast))


def test_cuda_engine_updating_while_collecting_changes_nothing(exact, tmp_path):
    waiting = trainer_of(tmp_path, engine="fast", **SETTINGS["raw frames"])
    expected = [waiting.iterate() or waiting.finish() for _ in range(6)]
    going_on = trainer_of(tmp_path, engine="fast", **SETTINGS["raw frames"])
    rows = [going_on.iterate() for _ in range(6)] + [going_on.finish()]
    assert rows[0] is None
    same_numbers(expected, rows[1:])
    same_weights(weights(waiting), weights(going_on))


def test_cuda_engine_continues_from_a_checkpoint(exact, tmp_path):
    whole = trainer_of(tmp_path, engine="fast", **SETTINGS["rooms"])
    for _ in range(4):
        whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    rows = [whole.iterate() for _ in range(5)]
    again = trainer_of(tmp_path, engine="fast", **SETTINGS["rooms"])
    again.load_state_dict(state)
    same_numbers(rows, [again.iterate() for _ in range(5)])
    same_weights(weights(whole), weights(again))


@pytest.mark.parametrize(
    ("bonus", "kind"),
    [
        *((bonus, "rooms") for bonus in ssedb.list_bonuses()),
        ("db", "raw frames"),
        ("db-ensemble", "clouds"),
        ("rnd", "sticky"),
    ],
)
def test_deterministic_run_on_a_gpu_resumes_bit_for_bit(tmp_path, bonus, kind):
    """At paper-like sizes, where kernels add in parallel, and in bfloat16."""

    def config(out, updates):
        sizes = dict(num_envs=32, minibatch_envs=8, rollout_steps=32, obs_norm_steps=64)
        networks = dict(policy_channels=(32, 64, 64), policy_width=256, bonus_options={})
        own = dict(bonus=bonus, device="cuda", deterministic=True, steps=updates * 32 * 32)
        return tiny_config(tmp_path / out, **SETTINGS[kind], **sizes, **networks, **own)

    ssedb.train(config("whole", 6))
    ssedb.train(config("stopped", 3))
    assert not torch.are_deterministic_algorithms_enabled()
    resume(tmp_path / "stopped", steps=6 * 32 * 32)
    assert numbers(tmp_path / "stopped") == numbers(tmp_path / "whole")
    assert same(last_state(tmp_path / "stopped"), last_state(tmp_path / "whole"))


def both_ways(compute, precision="fp32"):
    """What a function of an engine gives with the plain engine, and with compiled kernels."""
    results = []
    for kind in (Engine, CudaEngine):
        engine = kind(torch.device("cuda"), precision=precision)
        before = counters["stats"]["unique_graphs"]
        results.append(engine.wrap(lambda engine=engine: compute(engine), capturable=False)())
        assert (counters["stats"]["unique_graphs"] > before) == (kind is CudaEngine)
    return results


compiling = pytest.mark.filterwarnings("error:.*is not compiled")


@compiling
@pytest.mark.parametrize("batch", [64, 96])
def test_compiled_kernels_compute_what_they_replace(batch):
    torch._dynamo.reset()
    torch.manual_seed(0)
    obs = torch.randint(256, (batch, 4, 84, 84), dtype=torch.uint8, device="cuda")
    norm, newest, trunk = (
        ObsNorm((4, 84, 84)).cuda(),
        FrameNorm((1, 84, 84)).cuda(),
        ConvTrunk((4, 84, 84), (32, 64, 64)).cuda(),
    )
    norm.set(255 * torch.rand(4, 84, 84), torch.tensor(37.0))
    newest.observe(obs)
    for layer in (trunk.conv1, trunk.conv2, trunk.conv3):
        layer.bias.data.normal_()
    weights = torch.randn(batch, trunk.out_dim, device="cuda")

    def compute(engine):
        for module in (norm, newest, trunk):
            engine.prepare(module)
        scaled = norm.for_convs(obs)
        trunk.zero_grad()
        (trunk(scaled) * weights).mean().backward()
        return (scaled, newest(obs, norm), *(p.grad for p in trunk.parameters()))

    exact, same = both_ways(compute)
    for plain, fast in zip(exact, same, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)
    torch._dynamo.reset()
    for right, plain, fast in zip(exact, *both_ways(compute, "bf16"), strict=True):
        off, allowed = ((x.float() - right).norm() / right.norm() for x in (fast, plain))
        assert off <= 1.2 * allowed, f"{float(off):.2g} off, {float(allowed):.2g} without compiling"


@compiling
def test_compiled_loss_is_that_of_ppo():
    torch._dynamo.reset()
    torch.manual_seed(0)
    logits, values = (
        torch.randn(*shape, device="cuda", requires_grad=True) for shape in ((64, 18), (64,))
    )
    given = torch.randint(18, (64,), device="cuda"), *(torch.randn(3, 64, device="cuda") - 2)
    for clip in (0.1, 0.2, 0.3):

        def compute(engine, clip=clip):
            loss_of = engine.compile(ppo_loss)
            loss, metrics = loss_of(logits, values, *given, clip=clip, entropy_coef=0.01)
            return (loss, *torch.autograd.grad(loss, (logits, values)), *metrics.values())

        for plain, fast in zip(*both_ways(compute), strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_lower_precision_is_near_float32(tmp_path, precision):
    """Of the same batch: rewards, and the direction of the gradients."""
    batch = [x.cuda() for x in transitions(Grid(16), 40)]
    found = {}
    for name in ("fp32", precision):
        trainer = trainer_of(
            tmp_path, engine="eager", env="rooms-small", bonus_options=TINY_OPTIONS, precision=name
        )
        torch.manual_seed(0)
        engine = trainer.engine
        bonus = engine.prepare(ssedb.make_bonus("db", (4, 36, 36), 4, **TINY_OPTIONS))
        loss = engine.wrap(lambda *x, bonus=bonus: bonus.loss(*x)[0])(*batch)
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in bonus.parameters() if p.grad is not None])
        found[name] = engine.wrap(bonus.reward)(*batch), gradient
    assert not torch.equal(found[precision][0], found["fp32"][0])
    torch.testing.assert_close(found[precision][0], found["fp32"][0], rtol=0.03, atol=0.01)
    assert torch.cosine_similarity(found[precision][1], found["fp32"][1], dim=0) > 0.99


@pytest.mark.parametrize("function", ["bilinear_scores", "information_gain", "squared_distances"])
def test_objectives_keep_their_digits_under_tf32(function):
    """So do their gradients: with TF32 both are off by a thousandth."""
    torch.manual_seed(0)
    eta, other, weight = (torch.randn(n, 64, device="cuda") for n in (256, 256, 64))
    arguments = {
        "bilinear_scores": (eta, weight, other),
        "information_gain": (eta, weight @ weight.T, 10),
        "squared_distances": (eta, other),
    }[function]
    compute = getattr(objectives, function)

    def value_and_gradient(*given):
        first = given[0].detach().requires_grad_(function == "bilinear_scores")
        value = compute(first, *given[1:])
        if first.requires_grad:
            value.square().mean().backward()
        return value.detach(), first.grad

    wide = [x.double() if isinstance(x, torch.Tensor) else x for x in arguments]
    expected = value_and_gradient(*wide)
    engine = Engine(torch.device("cuda"), precision="tf32")
    found = engine.wrap(value_and_gradient)(*arguments)
    for actual, right in zip(found, expected, strict=True):
        if right is not None:
            assert (actual - right).norm() < 1e-6 * right.norm()


@pytest.mark.parametrize("name", ["db-ucb", "db-bebold", "db-ngu"])
@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp32"])
def test_sums_over_experience_are_exact_in_any_precision(name, precision):
    """Lambda is the sum of z z' in float64; TF32 would keep three of its digits."""
    torch.manual_seed(0)
    bonus = ssedb.make_bonus(name, (4, 36, 36), 4, **TINY_OPTIONS).cuda()
    eta = torch.randn(256, TINY_OPTIONS["latent_dim"], device="cuda")
    engine = Engine(torch.device("cuda"), precision=precision)
    engine.wrap(bonus.add)(eta)
    rows = eta.cpu().double()
    expected = torch.eye(len(rows.T), dtype=torch.float64) + rows.T @ rows
    torch.testing.assert_close(bonus.precision.cpu(), expected, rtol=1e-12, atol=1e-10)
    gain = (
        torch.log1p((rows @ torch.linalg.inv(expected) * rows).sum(1))
        * TINY_OPTIONS["state_dim"]
        / 2
    ).sqrt()
    torch.testing.assert_close(
        engine.wrap(bonus.gain)(eta).cpu().double(), gain, rtol=1e-4, atol=1e-6
    )


def test_graph_replays_draw_differently(tmp_path):
    trainer = trainer_of(tmp_path, engine="fast", **SETTINGS["rooms"])
    collect, act = trainer.collector.collect, trainer.policy.act
    actions = [tuple(collect(act).actions.flatten().tolist()) for _ in range(6)]
    assert len(set(actions)) == 6
    rollout = trainer.rollout
    assert len({tuple(row.tolist()) for row in rollout.actions}) > 10
    t, envs = rollout.indices(torch.arange(4, device="cuda"))
    with trainer.engine.in_background():
        draws = [float(trainer.bonus_step(t, envs, rollout=rollout)["i_pred"]) for _ in range(12)]
    assert len(set(draws[5:])) == len(draws[5:])
    trainer = trainer_of(tmp_path, engine="fast", **SETTINGS["raw frames"])
    for _ in range(2):
        frames = trainer.collector.collect(trainer.policy.act).frames[STACK:].float()
    looks = frames.mean((2, 3))  # [T, N]: no two frames have the same boxes
    assert len(looks.unique()) > 0.99 * looks.numel()
    trainer.close()


def test_captured_step_on_a_busy_gpu_draws_what_the_plain_one_draws(monkeypatch):
    device, synchronize = torch.device("cuda"), torch.cuda.synchronize
    engine, plain = CudaEngine(device), torch.Generator(device).manual_seed(0)
    generator = torch.Generator(device).manual_seed(0)

    def draw() -> torch.Tensor:
        torch.cuda._sleep(400_000_000)  # 0.2 s, in which late work of the capture would be done
        return torch.rand(4, generator=generator, device=device)

    def keep_capture_busy(*args) -> None:
        synchronize(*args)
        with torch.cuda.stream(engine._graphs.stream):
            torch.cuda._sleep(100_000_000)

    monkeypatch.setattr(torch.cuda, "synchronize", keep_capture_busy)  # called before a capture
    captured = engine.wrap(draw, generators=[generator])
    found = [captured().tolist() for _ in range(6)]
    assert found == [torch.rand(4, generator=plain, device=device).tolist() for _ in range(6)]


def test_captured_step_frees_no_old_graphs_while_it_is_captured():
    collects = []

    def step() -> torch.Tensor:
        collects.append(gc.isenabled())
        return torch.zeros(1, device="cuda")

    captured = CudaEngine(torch.device("cuda")).wrap(step)
    for _ in range(5):
        captured()
    assert collects == [True, True, True, False]  # three eager calls and the capture
    assert gc.isenabled()


@pytest.mark.parametrize("kind", ["raw frames", "rooms"])
def test_iteration_on_a_gpu_synchronises_a_few_times_however_long_it_is(tmp_path, kind):
    counts = []
    for steps in (16, 48):
        trainer = trainer_of(tmp_path, engine="fast", rollout_steps=steps, **SETTINGS[kind])
        for _ in range(8):  # all is captured
            trainer.iterate()
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.iterate()
        torch.cuda.set_sync_debug_mode("default")
        counts.append(sum("synchronizing" in str(warning.message) for warning in caught))
    assert counts[0] == counts[1], counts
    assert kind == "rooms" or counts[0] <= 7, counts


@pytest.mark.parametrize("bonus", ["db", "rnd", "e3b"])
def test_intrinsic_reward_on_a_gpu_is_that_of_a_cpu_and_continues_there(bonus):
    from tests.integrations.corridor import rollout, small

    on_cpu = small(bonus)
    on_gpu = small(bonus, device="cuda")
    first = [reward.compute(rollout(), sync=False) for reward in (on_cpu, on_gpu)]
    torch.testing.assert_close(first[1].cpu(), first[0], rtol=1e-3, atol=1e-4)
    on_gpu.compute(rollout())
    on_cpu.load_state_dict(on_gpu.checkpoint()["state"])
    after = [reward.compute(rollout(), sync=False) for reward in (on_cpu, on_gpu)]
    torch.testing.assert_close(after[1].cpu(), after[0], rtol=1e-3, atol=1e-4)


def test_sleep_while_waiting_leaves_the_core_to_others():
    code = """
import time, torch
from ssedb.engine.host import sleep_while_waiting
assert sleep_while_waiting()
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
began, busy = time.monotonic(), time.process_time()
torch.cuda._sleep(2_000_000_000)  # cycles
torch.cuda.synchronize()
print((time.process_time() - busy) / (time.monotonic() - began))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 0.2  # 1 without sleep_while_waiting
