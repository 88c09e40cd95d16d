"""Two processes that share a run: real torchrun, gloo, environments and noises that tell."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ssedb
from ssedb import cli
from ssedb.runs.folder import read_metrics
from tests.engine.data_parallel_worker import SIZES, config, observe
from tests.engine.plain_shares import SharesTrainer

ROOT = Path(__file__).parent.parent.parent


def torchrun(*args: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([*command, *map(str, args)], env=environment, cwd=ROOT, **pipes)


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A folder with what each of two processes saw, and with a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("processes")
    run = torchrun("tests.engine.data_parallel_worker", folder)
    errors = run.communicate(timeout=600)[1]
    assert run.returncode == 0, errors
    return folder


@pytest.fixture(scope="module")
def both(observed):
    return torch.load(observed / "0.pt"), torch.load(observed / "1.pt")


def leaves(state):
    """The tensors of a nested state, in order."""
    for value in state.values() if isinstance(state, dict) else state:
        if isinstance(value, (dict, list)):
            yield from leaves(value)
        elif isinstance(value, torch.Tensor):
            yield value


@pytest.mark.parametrize("rank", [0, 1])
def test_process_group_that_is_left_leaves_no_threads(observed, rank):
    """A thread that still holds tensors while Python ends aborts the process."""
    names = (observed / f"threads-{rank}.txt").read_text().split()
    assert names or not Path("/proc/self/task").exists()
    assert not [name for name in names if "gloo" in name]


@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_processes_hold_the_same_rollout_weights_scales_and_memories(both, bonus):
    first, second = (process[bonus] for process in both)
    for row in ("row", "second_row"):
        assert first[row] == second[row]
        assert len(first[row]) > 10
    for a, b in zip(leaves(first["second_state"]), leaves(second["second_state"]), strict=True):
        assert torch.equal(a, b)
    for name, value in first["rollout"].items():
        assert torch.equal(value, second["rollout"][name]), name


def test_processes_have_environments_minibatches_and_draws_of_their_own(both):
    first, second = (process["db"] for process in both)
    frames = first["rollout"]["frames"]
    assert frames.shape[1] == SIZES["num_envs"]
    assert not torch.equal(frames[:, :2], frames[:, 2:])  # other noise, other actions
    assert not torch.equal(first["rollout"]["actions"][:, :2], first["rollout"]["actions"][:, 2:])
    own = [set(seen["batches"]["policy_step"][1].tolist()) for seen in (first, second)]
    assert [len(envs) for envs in own] == [1, 1]
    assert not own[0] & own[1]
    draws = [state["background"] for state in first["second_state"]["engine"]["ranks"]]
    assert not torch.equal(*draws)


@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_iteration_of_two_processes_is_that_of_the_plain_engine(both, bonus):
    """Compare the first iteration with that of `SharesTrainer`, whose engine is the plain one.

    The plain engine acts in the environments of both processes and trains the policy on whole
    minibatches. The bonus model's gradient is the average over the two shares of a minibatch, and
    the loss of each share draws the numbers of its process. The test compares the rollout, the
    intrinsic rewards before and after the updates, the gradient of every step, weights, buffers,
    the reward scale, random states and metrics. It needs the gradients, because Adam hides their
    scale from the weights.
    """
    trainer = SharesTrainer(config(bonus))
    plain = observe(trainer)
    plain["draws"] = [engine.state_dict() for engine in trainer.engines]
    for process in both:
        seen = process[bonus]
        require_close(seen["rollout"], plain["rollout"], "rollout")
        require_same_gradients(seen["gradients"], plain["gradients"])
        for name in ("rewards", "state", "draws"):
            require_close(seen[name], plain[name], name)
        metrics = {name: seen["row"][name] for name in plain["row"]}
        assert metrics == pytest.approx(plain["row"], rel=1e-3, abs=1e-5)


def require_close(found, expected, name: str) -> None:
    """Check nested tensors up to the rounding of other batch sizes."""
    if isinstance(expected, torch.Tensor):
        limits = dict(rtol=1e-4, atol=2e-5, msg=lambda text: f"{name}: {text}")
        torch.testing.assert_close(found, expected, **limits)
        return
    keys = expected if isinstance(expected, dict) else range(len(expected))
    assert len(found) == len(expected), name
    for key in keys:
        require_close(found[key], expected[key], f"{name} {key}")


def require_same_gradients(found, expected) -> None:
    """Check each parameter's gradient in every step, up to a thousandth of the largest entry."""
    for step, gradients in expected.items():
        for seen, plain in zip(found[step], gradients, strict=True):
            assert seen.keys() == plain.keys()
            for name, gradient in plain.items():
                error = (seen[name] - gradient).abs().max()
                assert error <= 1e-3 * gradient.abs().max(), f"{step}: {name}"


def process_of(run: subprocess.Popen, rank: int) -> int:
    for entry in Path("/proc").iterdir():
        try:
            child = f"\nPPid:\t{run.pid}\n" in (entry / "status").read_text()
            if child and f"RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:  # no process, or one that has gone
            continue
    raise AssertionError(f"no process {rank}")


def strike(run, folder: Path, updates: int, rank: int, number: signal.Signals) -> str:
    """Send a process of a run a signal once the run has done so many updates."""
    metrics, began = folder / "metrics.jsonl", time.monotonic()
    while not metrics.exists() or metrics.read_text().count('"updates"') < updates:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() - began < 300
        time.sleep(0.05)
    os.kill(process_of(run, rank), number)
    return run.communicate(timeout=300)[1]


def test_run_killed_and_stopped_on_two_processes_is_the_run_never_interrupted(observed, tmp_path):
    folder = tmp_path / "run"
    flags = [x for k, v in SIZES.items() for x in (f"--{k.replace('_', '-')}", v)]
    begun = torchrun("ssedb", "train", *flags, "--steps", 100_000, "--out", folder)
    said = strike(begun, folder, 2, 1, signal.SIGKILL)  # the first is saved by then
    assert begun.returncode != 0
    # Torchrun asks the other to stop at the same time, so it may end before it has noticed.
    assert "saved at step" in said or "lost the others" not in said
    # Resumed; one process is asked to stop, and both stop with a checkpoint.
    more = torchrun("ssedb", "train", "--resume", folder)
    said = strike(more, folder, 4, 1, signal.SIGTERM)
    assert said.count("resumed at step") == 1
    rows = read_metrics(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["finished"], summary["steps"]) == (False, rows[-1]["steps"])
    assert (folder / "checkpoints" / f"step-{rows[-1]['steps']:012d}.ckpt").exists()
    whole = read_metrics(observed / "whole")
    for row, uninterrupted in zip(rows, whole, strict=False):
        for unlike in ("time", "sps"):
            del row[unlike], uninterrupted[unlike]
        assert row == uninterrupted
    with pytest.raises(ssedb.ConfigError, match="the checkpoint is of 2 processes, and here are 1"):
        ssedb.resume(folder, steps=200_000)


def test_other_commands_run_in_one_process(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["list", "envs"]) == 2
    assert "leave torchrun out" in capsys.readouterr().err
