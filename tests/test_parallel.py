"""One run on two processes is the same run as on one: real torchrun, gloo, a world and noises that tell."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ssedb.parallel import Team

import ssedb
from ssedb import cli, parallel
from ssedb.config import TrainConfig
from ssedb.runs.folder import RunFolder, read_metrics
from ssedb.runs.loop import resume, train
from ssedb.trainer import training_env
from tests.parallel_worker import KINDS, UPDATES, play
from tests.toy import tiny_config

ROOT = Path(__file__).parent.parent
QUICK = [
    "db-paper",
    "db-sample",
    "db-ours",
    "rnd",
    "icm",
    "random-features",
    "none",
    "disagreement",
    "db-ngu",
]


def torchrun(*args: object, **kwargs) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "-m",
        *map(str, args),
    ]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=environment, **pipes, **kwargs)


def play_on_two(folder: Path, kinds: list[str]) -> tuple[dict, dict]:
    """What each of two processes saw of these runs."""
    run = torchrun("tests.parallel_worker", folder, *kinds, cwd=ROOT)
    errors = run.communicate(timeout=600)[1]
    assert run.returncode == 0, errors
    return torch.load(folder / "0.pt"), torch.load(folder / "1.pt")


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    return play_on_two(tmp_path_factory.mktemp("parallel"), [*QUICK, "own-noise"])


def apart(one, two) -> float:
    """The largest difference of two tensors, as a share of the largest value."""
    one, two = one.double(), two.double()
    return float((one - two).abs().max() / one.abs().max().clamp_min(1e-12)) if one.numel() else 0.0


def flat(state):
    """The tensors of a nested state, in order."""
    for value in state.values():
        if isinstance(value, dict):
            yield from flat(value)
        elif isinstance(value, torch.Tensor):
            yield value


def check_same_run(kind: str, first: dict, second: dict) -> None:
    one = play(kind)
    # What is exact: the same steps in the same worlds under the same noise, the same first rewards.
    for mine, whole in zip(one["frames"], first["frames"], strict=True):
        assert torch.equal(mine, whole)
    assert apart(one["rewards"][0], first["rewards"][0]) < 1e-12
    # What is summed in another order: advantages, weights, gradients (their size too, of which Adam would make nothing).
    for name in ("rewards", "advantages"):
        assert len(one[name]) == UPDATES
        assert max(apart(a, b) for a, b in zip(one[name], first[name], strict=True)) < 1e-9
    assert len(one["gradients"]) == len(first["gradients"])
    for ones, twos in zip(one["gradients"], first["gradients"], strict=True):
        largest = max(float(g.abs().max()) for g in ones)
        for a, b in zip(ones, twos, strict=True):
            assert float((a - b).abs().max()) < 1e-9 * largest
    for name in ("policy", "bonus", "policy_adam", "reward_norm"):
        for a, b in zip(flat(one["state"][name]), flat(first["state"][name]), strict=True):
            assert apart(a, b) < 1e-9
    for a, b in zip(flat(one["state"]["env"]), flat(first["state"]["env"]), strict=True):
        assert torch.equal(a, b)  # the noise's generator and the counts of all worlds included
    assert torch.equal(one["state"]["rng"], first["state"]["rng"])
    for mine, theirs in zip(one["rows"], first["rows"], strict=True):
        assert {k: v for k, v in theirs.items() if v is not None} == pytest.approx(
            {k: v for k, v in mine.items() if v is not None}, rel=1e-6, abs=1e-9
        )
    # The two processes are the same to the bit in all but the rows they computed.
    assert first["rows"] == second["rows"]
    for a, b in zip(flat(first["state"]), flat(second["state"]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", QUICK)
def test_two_processes_do_what_one_does(on_two, kind):
    check_same_run(kind, on_two[0][kind], on_two[1][kind])


@pytest.mark.slow
def test_so_they_do_with_every_other_bonus(tmp_path):
    rest = [kind for kind in KINDS if kind not in (*QUICK, "own-noise")]
    first, second = play_on_two(tmp_path, rest)
    for kind in rest:
        check_same_run(kind, first[kind], second[kind])


def test_every_bonus_is_compared():
    assert {settings["bonus"] for settings in KINDS.values()} >= set(ssedb.list_bonuses())


def test_a_bonus_that_does_not_split_is_refused(on_two):
    assert len(play("own-noise")["rows"]) == UPDATES
    for process in on_two:
        assert (
            "bonus 'tests.parallel_worker:OwnNoise' does not split over processes"
            in process["own-noise"]["refused"]
        )


def test_the_comparison_tells_masks_apart(on_two):
    """Unequal numbers of pairs that count: a mean of the processes' means would be another number."""
    assert on_two[0]["db-paper"]["masked"] != on_two[1]["db-paper"]["masked"]


def test_processes_draw_for_all_and_use_their_own_rows():
    x = torch.zeros(3, 2)
    torch.manual_seed(0)
    whole = torch.randn(6, 2)
    rows = []
    for rank in (0, 1):
        torch.manual_seed(0)
        with Team(rank, 2):
            rows.append(parallel.randn_like(x))
    assert torch.equal(torch.cat(rows), whole)
    torch.manual_seed(0)
    assert torch.equal(parallel.randn_like(torch.zeros(6, 2)), whole)


@pytest.mark.parametrize(
    ("env", "noise", "envs"), [("breakout", "sticky", 8), ("rooms-small", "clouds", 2)]
)
def test_the_parts_of_an_environment_are_the_whole(env, noise, envs):
    config = TrainConfig(
        env=env,
        noise=noise,
        preset="rooms",
        seed=3,
        max_episode_steps=12,
        num_envs=envs,
        minibatch_envs=1,
    )

    def frames(team):
        with team:
            made = training_env(config, envs // team.size, 0, torch.device("cpu"))
            seen = [made.reset()]
            made.stagger()
            for t in range(20):
                step = made.step(team.mine(torch.arange(envs) + t) % made.num_actions)
                seen += [step.frames, step.dones]
        made.close()
        return seen

    whole, parts = frames(Team()), [frames(Team(rank, 2)) for rank in (0, 1)]
    for all_of_it, *pieces in zip(whole, *parts, strict=True):
        assert torch.equal(all_of_it, torch.cat(pieces))


SIZES = dict(
    env="rooms-small",
    preset="rooms",
    noise="random-box",
    num_envs=4,
    rollout_steps=16,
    minibatch_envs=2,
)
SIZES |= dict(
    bonus_epochs=1, obs_norm_steps=64, max_episode_steps=40, device="cpu", checkpoint_minutes=0.0
)
FLAGS = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", value)]


def process_of(run: subprocess.Popen, rank: int) -> int:
    for entry in Path("/proc").iterdir():
        try:
            child = f"\nPPid:\t{run.pid}\n" in (entry / "status").read_text()
            if child and f"RANK={rank}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except OSError:  # no process, or one that has gone
            continue
    raise AssertionError(f"no process {rank}")


def strike(
    run: subprocess.Popen, folder: Path, updates: int, rank: int, number: signal.Signals
) -> tuple[str, str]:
    """Sends a process of a run a signal once the run has done so many updates."""
    metrics, began = folder / "metrics.jsonl", time.monotonic()
    while not metrics.exists() or metrics.read_text().count('"updates"') < updates:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() - began < 300
        time.sleep(0.05)
    os.kill(process_of(run, rank), number)
    return run.communicate(timeout=300)


def test_a_run_is_killed_stopped_and_resumed_on_two_and_on_one(tmp_path):
    folder = tmp_path / "run"
    # Begun on two and killed.
    begun = torchrun("ssedb", "train", *FLAGS, "--steps", 100_000, "--out", folder)
    _, said = strike(begun, folder, 2, 1, signal.SIGKILL)  # the first is saved by then
    assert begun.returncode != 0
    # Torchrun asks the other to stop at the same time, so it may end before it has noticed.
    assert "saved at step" in said or "lost the others" not in said
    # Resumed on two; one process is asked to stop, and all stop with a checkpoint.
    more = torchrun("ssedb", "train", "--resume", folder)
    _, said = strike(more, folder, 5, 1, signal.SIGTERM)
    assert said.count("resumed at step") == 1
    done = read_metrics(folder)[-1]["steps"]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["finished"], summary["steps"]) == (False, done)
    assert (folder / "checkpoints" / f"step-{done:012d}.ckpt").exists()
    assert done < 100_000
    # Finished on one: all of it is the run that was never split nor interrupted.
    steps = done + 64
    assert resume(folder, steps=steps).steps == steps
    train(ssedb.TrainConfig(**SIZES, steps=steps, out=tmp_path / "whole"))
    rows, whole = read_metrics(folder), read_metrics(tmp_path / "whole")
    assert [row["steps"] for row in rows] == list(range(64, steps + 1, 64))
    for row, one in zip(rows, whole, strict=True):
        for name in (
            "states_seen",
            "episodes",
            "visit_entropy",
            "last_first_visit",
            "entropy",
            "bonus_raw",
            "i_nce",
        ):
            assert row[name] == pytest.approx(one[name], rel=2e-3), (name, row["steps"])


@pytest.mark.parametrize(
    ("processes", "changes", "message"),
    [
        (3, dict(num_envs=8), "num_envs=8 does not split over 3 processes; use a multiple of 3"),
        (
            3,
            dict(num_envs=12, rollout_steps=32),
            "makes minibatches of 128, which do not split over 3 processes",
        ),
        (
            3,
            dict(num_envs=12, rollout_steps=30, engine="fast"),
            "engine=fast: CUDA graphs are for one process",
        ),
        (
            3,
            dict(num_envs=12, rollout_steps=30, device="cuda:1"),
            "device=cuda:1: several processes take a GPU each",
        ),
        (
            2,
            dict(env="breakout", num_envs=4),
            "the 4 pools in which emulators step; use a multiple of 8",
        ),
    ],
)
def test_what_does_not_split_is_one_line(tmp_path, monkeypatch, processes, changes, message):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    with pytest.raises(ssedb.ConfigError) as error:
        RunFolder.create(tiny_config(tmp_path / "run", **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_other_commands_run_in_one_process(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["list", "envs"]) == 2
    assert "leave torchrun out" in capsys.readouterr().err


def test_without_torchrun_there_is_no_team(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with parallel.join() as team:
        assert team is parallel.ALONE
    monkeypatch.setenv("WORLD_SIZE", "4")  # some clusters set it for other reasons
    assert (parallel.rank(), parallel.size()) == (0, 1)
    code = "import sys; import ssedb.parallel; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
