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
from ssedb.trainer import Trainer
from tests.engine.data_parallel_worker import BONUSES, SIZES, config

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


@pytest.mark.parametrize("bonus", BONUSES)
def test_processes_hold_the_same_rollout_weights_scales_and_memories(both, bonus):
    first, second = (process[bonus] for process in both)
    assert first["rows"] == second["rows"]
    assert len(first["rows"][1]) > 10
    for a, b in zip(leaves(first["state"]), leaves(second["state"]), strict=True):
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
    draws = [state["background"] for state in first["state"]["engine"]["ranks"]]
    assert not torch.equal(*draws)


@pytest.mark.parametrize(("bonus", "step"), [("db", "policy_step"), ("rnd", "bonus_step")])
def test_step_of_two_processes_is_that_of_one_on_both_shards(both, bonus, step):
    """Of losses that are means over rows; the contrast of DB is among the rows of a process."""
    first, second = (process[bonus] for process in both)
    trainer = Trainer(config(bonus))  # begins with the same weights
    rollout = trainer.rollout
    for name, value in first["rollout"].items():
        setattr(rollout, name, value)
    if bonus == "rnd":
        trainer.observe_step(rollout=rollout)
    pairs = zip(first["batches"][step][:2], second["batches"][step][:2], strict=True)
    t, envs = (torch.cat(pair) for pair in pairs)
    getattr(trainer, step)(t, envs, *first["batches"][step][2:], rollout=rollout)
    module = trainer.policy if step == "policy_step" else trainer.bonus
    fresh = Trainer(config(bonus))
    before = fresh.policy if step == "policy_step" else fresh.bonus
    moved = 0.0
    for old, new, expected in zip(
        before.parameters(), module.parameters(), first["weights"][step], strict=True
    ):
        torch.testing.assert_close(new, expected, rtol=1e-4, atol=2e-6)
        moved = max(moved, float((new - old).detach().abs().max()))
    assert moved > 1e-5


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
