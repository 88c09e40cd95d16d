"""The benchmarks run, at sizes that say nothing about speed."""

import importlib
import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ssedb import ppo
from ssedb.compare.references import MEASURED
from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import Progress
from ssedb.sweep.execute import execute
from ssedb.sweep.grid import read_grid
from ssedb.sweep.plan import is_finished, write_plan
from ssedb.terminal import plural
from tests.sweep.grids import TWO, write_grid

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def words(sizes: dict[str, object]) -> list[str]:
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in sizes.items())
    return [word for pair in pairs for word in pair]


def table(printed: str) -> dict[str, list[str]]:
    """The rows of a table, below its rule, by their first cells."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    below = next(i for i, line in enumerate(lines) if "---" in line) + 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[below:]]
    return {first: rest for first, *rest in cells}


def in_process(script: str, **sizes: object) -> dict[str, list[str]]:
    """The table that a script prints in a process of its own: it starts others."""
    command = [sys.executable, BENCHMARKS / script, *words(sizes)]
    return table(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def rows(monkeypatch, capsys):
    """Runs a script here, and returns the table that it prints."""

    def run(script: str, **sizes: object) -> dict[str, list[str]]:
        monkeypatch.setattr("ssedb.bench.SECONDS", 0.01)
        monkeypatch.setattr(sys, "argv", [script, *words(sizes)])
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        return table(capsys.readouterr().out)

    return run


def test_pools_script_runs(rows):
    found = rows("pools.py", env="breakout", envs=4, steps=3, repeats=2)
    assert list(found) == ["one vector", "4 pools, one after the other", "4 pools, as they come"]
    assert found["one vector"][1] == "1.00"


def test_kernels_script_shares_out_the_time_of_an_iteration(monkeypatch, capsys):
    sizes = "env=rooms-tiny bonus=rnd preset=rooms num_envs=4 minibatch_envs=4 rollout_steps=4"
    flags = "obs_norm_steps=16 device=cpu --warm-up 1 --iterations 1 --rows 1000"
    monkeypatch.setattr(sys, "argv", ["kernels.py", *sizes.split(), *flags.split()])
    runpy.run_path(str(BENCHMARKS / "kernels.py"), run_name="__main__")
    found = table(capsys.readouterr().out)
    assert "aten::convolution_backward" in found
    shares = [float(share.rstrip("%")) for _, share, *_ in found.values()]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=3)


def test_figures_exploration_are_drawn_from_the_log_and_small_enough_for_the_docs(tmp_path):
    script = BENCHMARKS / "figures_exploration.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, check=True)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["bonus-blind-fade.png", "bonus-followed.png", "exploration.png"]
    for name in drawn:
        assert 10_000 < (tmp_path / name).stat().st_size < 150_000
        assert (BENCHMARKS.parent / "docs" / name).stat().st_size < 150_000


def test_tables_of_the_study_in_the_docs_are_those_of_its_archive(tmp_path):
    docs = (BENCHMARKS.parent / "docs" / "results-rooms.md").read_text()
    page = tmp_path / "page.md"
    page.write_text(re.sub(r"(?m)^\| `rnd` \|.*\n", "", docs))
    subprocess.run([sys.executable, BENCHMARKS / "study_tables.py", "--page", page], check=True)
    assert page.read_text() == docs


def test_study_tables_refuse_a_page_without_their_places(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- table: states -->\n<!-- end of table -->\n")
    monkeypatch.setattr(sys, "argv", ["study_tables.py", "--page", str(page)])
    with pytest.raises(SystemExit, match="0 places for the table 'probe', not one"):
        runpy.run_path(str(BENCHMARKS / "study_tables.py"), run_name="__main__")
    assert page.read_text() == "<!-- table: states -->\n<!-- end of table -->\n"


def test_random_references_are_of_whole_episodes_and_keep_other_games(tmp_path):
    out = tmp_path / "references.json"
    known_file = BENCHMARKS.parent / "ssedb" / "compare" / "random_references.json"
    out.write_text(known_file.read_text())
    printed = in_process(
        "random_references.py", games="breakout", episodes=20, processes=1, out=out
    )
    found = json.loads(out.read_text())["games"]
    assert list(printed) == ["breakout"]
    assert list(found) == list(MEASURED)
    assert found["pong"]["episodes"] == MEASURED["pong"].episodes
    assert found["breakout"]["episodes"] == 20
    assert 100 < found["breakout"]["mean_length"] < 400
    known = MEASURED["breakout"]
    assert found["breakout"]["standard_error"] < 0.6
    doubt = math.hypot(found["breakout"]["standard_error"], known.standard_error)
    assert abs(found["breakout"]["mean"] - known.mean) < 4 * doubt


TINY = {"device": "cpu", "preset": "rooms", "num_envs": 4, "rollout_steps": 8}


def test_all_bonuses_times_every_row(rows):
    found = rows("all_bonuses.py", **TINY, minibatch_envs=2, rivals="rnd", rooms_envs=4, updates=1)
    what = ["db, 3 epochs of each", "rnd"]
    what += ["db, random-box on raw frames", "db, pixel on raw frames"]
    names = [*(f"breakout, {name}" for name in what), "rooms, db, 4 environments"]
    assert list(found) == [*names, "updates alone, PPO x3 and DB x3"]
    assert all(re.fullmatch(r"[\d,]+", row[2]) for row in found.values())


def test_bonus_cost_times_each_bonus():
    found = in_process("bonus_cost.py", **TINY, minibatches=1, bonuses="rnd")
    assert list(found) == ["`rnd`"]
    assert len(found["`rnd`"]) == 6


def test_lsvi_times_both_horizons(rows):
    assert list(rows("lsvi.py", episodes=2)) == ["12", "20"]


def test_scaling_times_each_number_of_environments(rows, tmp_path):
    out = tmp_path / "scaling.json"
    sizes = {name: value for name, value in TINY.items() if name != "num_envs"}
    rows("scaling.py", **sizes, env="breakout", envs=2, updates=1, out=out)
    (row,) = json.loads(out.read_text())
    assert row["envs"] == 2
    assert row["trained"] > 0


def test_rllte_bonuses_script_runs(rows):
    pytest.importorskip("rllte", reason="rllte-core is not installed (requirements/rivals.txt)")
    found = rows("rllte_bonuses.py", steps=3, envs=2, batch_size=4, models=2, burn_in=1, repeats=1)
    assert list(found) == [
        f"{bonus}, {part}"
        for bonus in ("icm", "rnd", "disagreement")
        for part in ("reward", "update")
    ]
    encoder = (
        2 * (400 * 4 * 64 * 32 + 81 * 32 * 16 * 64 + 49 * 64 * 9 * 64 + 3136 * 512) / 1e9
    )  # GFLOP of a stack
    rllte_flops = float(found["rnd, reward"][3])
    assert rllte_flops == pytest.approx(
        3 * 2 * 2 * encoder, abs=0.05
    )  # predictor and target on 3 x 2 stacks


@pytest.mark.slow
def test_sb3_ppo_script_runs(rows):
    found = rows(
        "sb3_ppo.py", num_envs=2, rollout_steps=4, minibatch_envs=1, ppo_epochs=1, repeats=1
    )
    assert list(found) == ["emulators alone", "Stable-Baselines3", "ours"]
    speeds = [float(row[0].replace(",", "")) for row in found.values()]
    assert float(found["ours"][2]) == pytest.approx(speeds[2] / speeds[1], rel=0.05)


def test_bonus_reaches_policy_with_ours_and_not_with_rllte(rows):
    pytest.importorskip("rllte", reason="rllte-core is not installed (requirements/rivals.txt)")
    theirs, ours = rows("bonus_reaches_policy.py").values()
    assert theirs == ["0.000000", "2560"]
    assert float(ours[0]) > 0.01
    assert ours[1] == "0"


def test_sparse_reward_appends_runs_and_makes_none_twice(tmp_path):
    out = tmp_path / "runs.jsonl"
    for _ in range(2):
        found = in_process("sparse_reward.py", bonuses="rnd", seeds=1, steps=1024, out=out)
        assert list(found) == ["rnd"]
        assert found["rnd"][0] == "1"
    (run,) = map(json.loads, out.read_text().splitlines())
    assert run["bonus"] == "rnd"
    assert len(run["success"]) == 2


@pytest.mark.slow
def test_packing_times_each_number_of_runs(tmp_path):
    out = tmp_path / "packing.json"
    grid = BENCHMARKS.parent / "experiments" / "smoke.toml"
    command = [sys.executable, BENCHMARKS / "packing.py", grid, "--device", "cpu", "--out", out]
    command += ["--runs", "1", "2", "--seconds", "0.1", "--set", "num_envs=2", "minibatch_envs=2"]
    command += ["rollout_steps=4", "bonus_epochs=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(out.read_text())
    assert list(table(done.stdout)) == ["2", "1"]
    assert all(row["rate"] > 0 and row["host"] > 0 for row in found["rows"])
    assert all(0 < row["cores"] < 2 * row["runs"] for row in found["rows"])
    assert found["best"] in (1, 2)


def test_packing_prefers_fewer_runs_that_are_nearly_as_fast():
    best = runpy.run_path(str(BENCHMARKS / "packing.py"))["best_of"]
    rows = [{"runs": number, "rate": rate} for number, rate in ((8, 100.0), (4, 98.0), (2, 90.0))]
    assert best(rows) == 4


TRAINS = """
import json, pathlib, sys, time
assert sys.argv[1:4] == ["train", "--env", "rooms"], "there is no flag"
run = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
run.mkdir()
with open(run / "metrics.jsonl", "w") as file:
    for number in range(1, 1000):
        time.sleep(0.05)
        row = {{"time": {clock}, "steps": 100 * number}}
        print(json.dumps(row), file=file, flush=True)
"""


def version_of(folder, clock="time.time()"):
    """Make a folder of a version that writes a row each 100 steps, 0.05 seconds apart."""
    package = folder / "ssedb"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(TRAINS.format(clock=clock))
    return folder


def test_versions_prints_how_much_faster_the_second_version_trains(tmp_path):
    before = version_of(tmp_path / "before", clock="0.2 * number")
    after = version_of(tmp_path / "after", clock="0.1 * number")
    command = [sys.executable, BENCHMARKS / "versions.py", before, after]
    command += ["--rounds", "2", "--iterations", "2", "--warm-up", "1", "--", "--env", "rooms"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert table(done.stdout) == {str(before): ["500"], str(after): ["1,000"]}
    assert "after / before: 2.000 +- 0.000" in done.stdout


def test_versions_counts_no_time_in_which_a_version_is_stopped(from_benchmarks, tmp_path):
    training = from_benchmarks("versions").Training(
        version_of(tmp_path / "version"), ["--env", "rooms"], tmp_path, timeout=60
    )
    try:
        training.wait_for(1)
        training.signal(signal.SIGSTOP)
        time.sleep(0.2)
        stopped = training.rows()
        time.sleep(1)
        assert training.rows() == stopped
        assert training.speed(2) > 300  # about 2000; with the second of the stop about 170
    finally:
        training.kill()


def test_versions_shows_the_error_of_a_version(from_benchmarks, tmp_path):
    training = from_benchmarks("versions").Training(
        version_of(tmp_path / "version"), ["--bogus", "1"], tmp_path, timeout=60
    )
    with pytest.raises(SystemExit, match="version: AssertionError: there is no flag"):
        training.wait_for(1)


@pytest.fixture
def from_benchmarks(monkeypatch):
    """Imports scripts as their commands do: from their own folder."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_time_to_score_reports_what_each_trainer_reached(tmp_path):
    out = tmp_path / "times.json"
    earlier = {"trainer": "paper", "minutes": 3.0, "start": 1.0, "steps": 64, "score": 12.0}
    out.write_text(json.dumps([earlier | {"reached": True}]))
    command = [sys.executable, BENCHMARKS / "time_to_score.py", "--small", "--device", "cpu"]
    command += ["--minutes", "0", "--out", out, "--trainers", "cleanrl-rnd", "ours"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list(table(done.stdout)) == ["ours", "paper", "cleanrl-rnd"]
    ours, kept, cleanrl = json.loads(out.read_text())
    assert kept["score"] == 12.0
    for row in (ours, cleanrl):
        assert (row["steps"], row["reached"], row["score"]) == (32, False, None)
        assert 0 < row["start"] < row["minutes"]


def test_time_to_score_stops_at_the_first_hundred_games_that_average_it(
    from_benchmarks, monkeypatch
):
    module = from_benchmarks("time_to_score")
    seen = [(0, None, 0), (64, 20.0, 99), (128, 9.9, 150), (192, 10.0, 180), (256, 11.0, 200)]
    progress = ((steps, {"score": score, "episodes": games}) for steps, score, games in seen)
    monkeypatch.setitem(module.TRAINERS, "ours", lambda options: progress)
    sent = []
    options = SimpleNamespace(env="breakout", seed=1, score=10.0, minutes=60.0, device="cpu")
    module.follow("ours", options, time.time(), SimpleNamespace(send=sent.append))
    (row,) = sent
    assert (row["steps"], row["score"], row["games"], row["reached"]) == (192, 10.0, 180, True)
    assert [score for _, _, score in row["curve"]] == [None, None, 9.9, 10.0]


def test_cleanrl_rnd_has_the_published_sizes_and_trains_what_it_should(from_benchmarks):
    module = from_benchmarks("cleanrl_rnd")
    settings = module.Settings(num_envs=3, num_steps=4)
    learner = module.Learner(4, settings, torch.device("cpu"))
    convolutions = 4 * 32 * 64 + 32 + 32 * 64 * 16 + 64 + 64 * 64 * 9 + 64
    dense = 3137 * 256 + 257 * 448 + 2 * 449 * 448 + 449 * 4 + 449
    assert sum(p.numel() for p in learner.agent.parameters()) == convolutions + dense
    before = {name: p.clone() for name, p in learner.rnd.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    obs = torch.rand(12, 4, 84, 84, generator=generator) * 255
    actions, rest = torch.arange(12) % 4, torch.rand(3, 12, generator=generator)
    frames = obs[:, -1:] / 255
    torch.manual_seed(0)
    errors = learner.rnd.errors(frames).mean().item()
    for _ in range(3):
        learner.step(obs, frames, actions, *rest)
    assert learner.rnd.errors(frames).mean().item() < 0.9 * errors
    changed = {name: bool((p != before[name]).any()) for name, p in learner.rnd.named_parameters()}
    assert changed == {name: name.startswith("predictor") for name in changed}


def test_cleanrl_rnd_advantages_are_those_of_gae_without_ends(from_benchmarks):
    module = from_benchmarks("cleanrl_rnd")
    learner = module.Learner(4, module.Settings(), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.rand(5, 3, generator=generator), torch.rand(6, 3, generator=generator)
    expected, _ = ppo.advantages_and_returns(rewards, values, 0.99, 0.95)
    torch.testing.assert_close(learner.advantages(rewards, values), expected)


@pytest.fixture(scope="module")
def toy_sweep(tmp_path_factory):
    """The folder of a sweep of two finished runs, one after the other in this process."""
    folder = tmp_path_factory.mktemp("study")
    grid = read_grid(write_grid(folder, TWO), folder / "toy", {"device": "cpu"})
    write_plan(grid, folder / "toy", 1)
    for run in grid.runs:
        execute(run, False, "cpu", Progress())
    return folder / "toy"


@pytest.fixture
def pack(monkeypatch, capsys):
    """Packs a sweep into an archive, and returns what the script prints."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["pack_study.py", *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / "pack_study.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def unpacked(archive: Path, folder: Path) -> Path:
    shutil.unpack_archive(archive, folder)
    return folder / "toy"


def one_run(sweep: Path, folder: Path, number: int) -> Path:
    """Copy the sweep with only one of its runs."""
    gone = sorted(path.name for path in sweep.iterdir() if path.is_dir())
    gone.pop(number)
    return shutil.copytree(sweep, folder, ignore=shutil.ignore_patterns(*gone))


def test_pack_study_adds_to_an_archive_what_a_sweep_counts_as_finished(toy_sweep, tmp_path, pack):
    archive = tmp_path / "study.tar.gz"
    parts = [one_run(toy_sweep, tmp_path / str(number) / "toy", number) for number in (0, 1)]
    for number, part in enumerate(parts, 1):  # made on two machines
        assert f"{plural(number, 'run')}, 1 new" in pack(part, archive, "--every", 2)
    back = unpacked(archive, tmp_path)
    grid = read_grid(write_grid(tmp_path, TWO), back, {"device": "cpu"})
    assert all(is_finished(run, probe=False) for run in grid.runs)
    for run in grid.runs:
        assert [row["steps"] for row in read_metrics(run.folder)] == [32, 96]
        assert not (run.folder / "checkpoints").exists()
    before = archive.read_bytes()
    assert "2 runs, 0 new" in pack(back, archive, "--every", 2)
    assert archive.read_bytes() == before


def test_pack_study_does_not_mix_two_sweeps(toy_sweep, tmp_path, pack, capsys):
    archive, other = tmp_path / "study.tar.gz", one_run(toy_sweep, tmp_path / "other", 0)
    pack(toy_sweep, archive)
    before = archive.read_bytes()
    with pytest.raises(SystemExit) as ended:
        pack(other, archive)
    assert ended.value.code == 2
    assert "holds a sweep toy, not other; name another archive" in capsys.readouterr().err
    assert archive.read_bytes() == before


def test_pack_study_keeps_the_more_complete_run_and_none_that_is_not_finished(
    toy_sweep, tmp_path, pack
):
    archive, again = tmp_path / "study.tar.gz", tmp_path / "again.tar.gz"
    part = one_run(toy_sweep, tmp_path / "toy", 0)
    (part / "begun").mkdir()
    shutil.copy(next(toy_sweep.glob("*/config.toml")), part / "begun")
    assert "1 run, 1 new" in pack(part, archive)
    whole = archive.read_bytes()
    pack(part, archive, "--every", 2)
    assert archive.read_bytes() == whole
    pack(part, again, "--every", 2)
    assert again.read_bytes() != whole
    pack(part, again)
    assert again.read_bytes() == whole
    (part / "plan.json").write_text('{"probe": true}')
    assert "0 runs" in pack(part, tmp_path / "probed.tar.gz")


def test_study_part_keeps_the_runs_of_earlier_parts_and_reports_those_left(
    toy_sweep, tmp_path, pack
):
    archive, out = tmp_path / "study.tar.gz", tmp_path / "out"
    pack(one_run(toy_sweep, tmp_path / "toy", 0), archive)
    grid = write_grid(tmp_path, TWO)
    command = [BENCHMARKS / "study_part.sh", grid, archive, "0", "--device", "cpu"]
    env = os.environ | {"OUT": str(out), "PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert "toy: 2 runs, 1 finished, 1 to do" in done.stdout
    assert "not begun, too late to finish in 0 minutes: 1 run" in done.stderr
    assert done.returncode == 1
    (run,) = unpacked(out / "study.tar.gz", tmp_path / "back").glob("*/metrics.jsonl")
    assert len(read_metrics(run.parent)) == 3
