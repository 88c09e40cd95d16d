"""A real sweep on worker processes: killed workers, a killed driver, a run that always fails."""

import json
import os
import signal
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
import torch

from ssedb import cli
from ssedb.runs.loop import train
from ssedb.sweep import cluster, scheduler
from ssedb.sweep.grid import read_grid
from ssedb.sweep.plan import code_version, is_finished, made_by_other_code, unplanned_runs
from ssedb.sweep.scheduler import Execution, Scheduler, Worker, run_here
from ssedb.sweep.worker import MemoryUse
from tests.helpers import is_alive, wait_for
from tests.sweep.grids import (
    TOY,
    TWO,
    Killing,
    Silent,
    all_numbers,
    cut_off_worker,
    deaf_worker,
    failing_worker,
    hungry_worker,
    numbers,
    patient_worker,
    stopped_worker,
    swift_worker,
    write_grid,
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two runs, the worker of one of which was killed on the way, and one that cannot work."""
    folder = tmp_path_factory.mktemp("pool")
    grid = read_grid(write_grid(folder, TWO), folder / "runs", {"device": "cpu"})
    bad = read_grid(
        write_grid(folder, TOY.replace("rooms-small", "Blackjack-v1")),
        folder / "runs",
        {"device": "cpu"},
    ).runs[0]
    display = Killing([*grid.runs, bad], [grid.runs[1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # sums in another order have other last digits
        patch.setattr(scheduler, "cores", lambda: 2)
        outcome = run_here([bad, *grid.runs], display, Execution(device="cpu"))
    return folder, grid, bad, display, outcome


def test_sweep_with_a_killed_worker_loses_no_run(swept):
    folder, grid, _, display, outcome = swept
    assert not display.victims
    assert (
        sum(
            "killed by signal 9, perhaps out of memory); taken up again" in note
            for note in display.notes
        )
        == 1
    )
    assert {run.id for run in outcome.finished} == {run.id for run in grid.runs}
    assert len(outcome.finished) == 2  # once each
    assert all(is_finished(run, probe=False) for run in grid.runs)
    assert len(all_numbers(folder / "runs")) == 2


def test_sweep_without_a_number_of_jobs_measures_a_run_and_begins_more(swept):
    notes = [note for note in swept[3].notes if note.startswith("a run needs")]
    assert len(notes) == 1
    assert notes[0].endswith("GiB: 2 at a time, 1 thread each")


def test_sweep_with_a_run_that_cannot_work_reports_it_and_finishes_the_others(swept):
    _, _, bad, _, outcome = swept
    assert list(outcome.failed) == [bad.name]
    assert "needs uint8 images" in outcome.failed[bad.name]
    failure = json.loads((bad.folder / "failure.json").read_text())
    assert failure["attempts"] == 1  # bad settings are not tried twice
    assert failure["config"]["env"] == "Blackjack-v1"
    assert "ConfigError" in (bad.folder / "log.txt").read_text()


def test_sweep_killed_or_not_gives_the_numbers_of_the_run_alone(swept, tmp_path):
    _, grid, _, _, _ = swept
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in grid.runs:
            config = (
                read_grid(write_grid(tmp_path, TWO), tmp_path / "runs", {"device": "cpu"})
                .runs[grid.runs.index(run)]
                .config
            )
            train(config)
            assert numbers(config.out) == numbers(run.folder)
    finally:
        torch.set_num_threads(threads)


def test_sweep_notices_other_code_and_other_settings(swept, tmp_path):
    folder, grid, _, _, _ = swept
    assert made_by_other_code(grid.runs) == {}
    origin = grid.runs[0].folder / "origin.json"
    saved = origin.read_text()
    assert json.loads(saved)["code"] == code_version()
    origin.write_text(saved.replace(code_version(), "0.0.9 source 12345678"))
    assert made_by_other_code(grid.runs) == {"0.0.9 source 12345678": 1}
    origin.write_text(saved)
    longer = read_grid(
        write_grid(tmp_path, TWO.replace("steps = 96", "steps = 128")), folder / "runs"
    )
    assert not any(is_finished(run, probe=False) for run in longer.runs)
    assert len(unplanned_runs(longer, folder / "runs")) == 2


def test_run_counts_as_finished_when_trained_with_these_settings_and_probed(swept, tmp_path):
    _, grid, _, _, _ = swept
    run = grid.runs[0]
    assert not is_finished(run, probe=True)
    config = run.folder / "config.toml"
    saved = config.read_text()
    config.write_text(saved.replace("gamma = 0.99", "gamma = 0.9"))
    assert not is_finished(run, probe=False)
    config.write_text(saved)
    assert is_finished(run, probe=False)


def sweep(grid, out, jobs):
    command = [sys.executable, "-m", "ssedb", "sweep", str(grid), "--out", str(out)]
    command += ["--device", "cpu", "--jobs", str(jobs)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def lock_holders(out):
    return [int(path.read_text() or 0) for path in out.glob("*/.lock")]


def test_sweep_after_a_killed_driver_finishes_by_the_same_command(swept, tmp_path):
    grid, out = write_grid(tmp_path, TWO), tmp_path / "runs"
    driver = sweep(grid, out, jobs=1)
    wait_for(lambda: len(list(out.glob("*/summary.json"))) >= 1)
    workers = lock_holders(out)
    driver.kill()
    driver.communicate()
    before = {
        path.parent.name: path.read_bytes()
        for path in out.glob("*/summary.json")
        if b'"finished": true' in path.read_bytes()
    }
    assert len(before) < 2
    again = sweep(grid, out, jobs=1)
    stdout, stderr = again.communicate(timeout=120)
    assert again.returncode == 0, stderr
    assert "2 runs, all finished" in stdout
    assert not any(
        is_alive(pid) for pid in workers
    )  # the workers of the dead driver have ended too
    assert all_numbers(out) == all_numbers(swept[0] / "runs")
    assert all(
        (out / name / "summary.json").read_bytes() == summary for name, summary in before.items()
    )  # not done twice


def test_sweep_on_a_signal_saves_every_run_and_a_second_sweep_waits(tmp_path):
    grid, out = write_grid(tmp_path, TOY.replace("steps = 96", "steps = 96000")), tmp_path / "runs"
    driver = sweep(grid, out, jobs=1)
    wait_for(lambda: list(out.glob("*/checkpoints/*.ckpt")))
    second = sweep(grid, out, jobs=1)
    _, stderr = second.communicate(timeout=60)
    assert second.returncode == 2
    assert (
        f"{out} is in use by process {driver.pid}; wait for it to end, or choose another --out"
        in stderr
    )
    driver.send_signal(signal.SIGTERM)
    stdout, stderr = driver.communicate(timeout=60)
    assert driver.returncode == 130, stderr
    assert "8 of 8 runs not finished; the same command goes on with them" in stdout
    assert "stopping: every run ends with its update and saves; once more stops at once" in stderr
    stopped = [json.loads(path.read_text()) for path in out.glob("*/summary.json")]
    assert stopped
    assert all(summary["steps"] >= 32 and not summary["finished"] for summary in stopped)


def test_sweep_out_of_memory_tries_again_with_fewer_at_a_time(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:3]
    monkeypatch.setattr(scheduler, "work", hungry_worker)
    monkeypatch.setattr(scheduler, "cores", lambda: 3)
    made = Scheduler(runs, display := Silent(runs), Execution(device="cpu"))
    while made.poll():
        pass
    made.close()
    assert display.notes[0] == "a run needs 1.0 GiB: 3 at a time, 1 thread each"
    assert made.limit.now == 2
    assert {run.id for run in made.outcome.finished} == {run.id for run in runs}


def test_workers_of_a_killed_driver_save_before_they_end(tmp_path):
    text = TOY.replace("steps = 96", "steps = 96000").replace(
        "checkpoint_minutes = 0", "checkpoint_minutes = 60"
    )
    out = tmp_path / "runs"
    driver = sweep(write_grid(tmp_path, text), out, jobs=1)
    wait_for(lambda: any(path.stat().st_size for path in out.glob("*/metrics.jsonl")))
    assert {path.name for path in out.glob("*/checkpoints/*.ckpt")} == {"step-000000000000.ckpt"}
    driver.kill()
    driver.communicate()
    wait_for(lambda: len(list(out.glob("*/checkpoints/*.ckpt"))) == 2)


def tries(folder):
    """How often each seed was tried, and what its failure.json says."""
    found = {}
    for path in folder.glob("*/failure.json"):
        failure = json.loads(path.read_text())
        found[failure["config"]["seed"]] = (
            len((path.parent / "tries").read_text()),
            failure["attempts"],
        )
    return found


@pytest.mark.parametrize("retries", [0, 2])
def test_sweep_retries_a_run_as_often_as_asked(tmp_path, monkeypatch, capsys, retries):
    monkeypatch.setattr(scheduler, "work", failing_worker)
    chosen = ["--set", "noise=none", "bonus=db", "seed=[0,1,2]", "--retries", str(retries)]
    command = ["sweep", str(write_grid(tmp_path)), "--out", str(tmp_path / "runs")]
    assert cli.main([*command, "--device", "cpu", "--jobs", "1", *chosen]) == 1
    asked = (1 + retries, 1 + retries)
    assert tries(tmp_path / "runs") == {
        0: asked,
        1: (1, 1),
        2: asked,
    }  # seed 1 fails with what would come again
    said = capsys.readouterr()
    assert "3 runs failed" in said.out
    assert said.err.count("ALARM at step 64: entropy") == 2 * (1 + retries) + 1  # of every try


def test_sweep_stops_when_its_minutes_are_over(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:1]
    now, said = [0.0], []

    def clock():
        now[0] += 100
        assert now[0] != 1500, "it goes on past its minutes"
        return now[0]

    class Stopping(Silent):
        def stepped(self, run_id, steps):
            super().stepped(run_id, steps)
            monkeypatch.setattr(scheduler.time, "monotonic", clock)  # the worker is there

        def note(self, text):
            said.append((text, now[0]))

    monkeypatch.setattr(scheduler, "work", patient_worker)
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: 0.0)
    outcome = run_here(runs, Stopping(runs), Execution(device="cpu", jobs=1, minutes=10))
    monkeypatch.undo()
    assert outcome.stopped
    assert (outcome.finished, outcome.failed) == ([], {})
    (text, at), *_ = said
    assert text == "10 minutes are over; every run saves and stops"
    assert 600 < at <= 800


def test_sweep_stopped_while_it_begins_runs_asks_them_too(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:2]
    start, begun = Scheduler._start_worker, []

    def stopped_meanwhile(scheduler):
        begun.append(start(scheduler))
        signal.raise_signal(signal.SIGTERM)  # before the worker has its run
        return begun[-1]

    monkeypatch.setattr(scheduler, "work", patient_worker)
    monkeypatch.setattr(Scheduler, "_start_worker", stopped_meanwhile)
    outcome = run_here(runs, Silent(runs), Execution(device="cpu", jobs=2))
    assert outcome.stopped
    assert (outcome.finished, outcome.failed) == ([], {})
    assert len(begun) == 1  # the second run was not begun


def test_sweep_stopped_twice_kills_its_runs(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:1]
    start, begun = Scheduler._start_worker, []

    class Stopping(Silent):
        def stepped(self, run_id, steps):
            super().stepped(run_id, steps)
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(scheduler, "work", deaf_worker)
    monkeypatch.setattr(
        Scheduler,
        "_start_worker",
        lambda scheduler: begun.append(start(scheduler)) or begun[-1],
    )
    outcome = run_here(runs, Stopping(runs), Execution(device="cpu", jobs=1))
    assert outcome.stopped
    assert [worker.process.exitcode for worker in begun] == [-signal.SIGKILL]


def test_sweep_survives_a_worker_that_dies_in_the_middle_of_a_message(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:1]
    monkeypatch.setattr(scheduler, "work", cut_off_worker)
    outcome = run_here(runs, display := Silent(runs), Execution(device="cpu", jobs=1))
    assert outcome.finished == runs
    assert display.notes[0] == f"{runs[0].name}: its process died (exit code 3); taken up again"


@pytest.mark.parametrize("retries", [0, 1])
def test_sweep_takes_up_a_run_that_a_signal_to_its_worker_alone_stopped(
    tmp_path, monkeypatch, retries
):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[:2]
    monkeypatch.setattr(scheduler, "work", stopped_worker)
    how = Execution(device="cpu", jobs=1, retries=retries)
    outcome = run_here(runs, display := Silent(runs), how)
    error = "a signal that the sweep did not send stopped it"
    assert not outcome.stopped
    assert outcome.failed == ({} if retries else {runs[0].name: error})
    assert outcome.finished == [runs[1], *[runs[0]] * retries]
    assert (f"{runs[0].name}: {error}; taken up again" in display.notes) == bool(retries)


@pytest.mark.parametrize(("whole", "finished"), [(True, [0, 1, 2, 4]), (False, range(5))])
def test_sweep_of_whole_runs_begins_those_that_would_finish(tmp_path, monkeypatch, whole, finished):
    planned = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs
    runs = [planned[i] for i in (0, 1, 2, 4, 3)]
    assert [run.config.bonus for run in runs] == ["db", "db", "rnd", "db", "rnd"]
    times = [400, 180, 60, 60, 60]  # the first only goes on from its last step
    now, seconds = [0.0], iter(times)

    class Slow(Silent):
        def started(self, run):
            super().started(run)
            now[0] += next(seconds)

    monkeypatch.setattr(scheduler, "work", swift_worker)
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    how = Execution(device="cpu", jobs=1, minutes=13, whole=whole)  # 780 s
    outcome = run_here(runs, display := Slow(runs), how)
    monkeypatch.undo()
    assert [run.id for run in outcome.finished] == [runs[i].id for i in finished]
    late = [note for note in display.notes if "too late" in note]
    assert late == ["not begun, too late to finish in 13 minutes: 1 run"] * whole


def test_sweep_of_whole_runs_knows_the_pace_of_the_runs_under_way(tmp_path, monkeypatch):
    planned = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs
    runs = [planned[i] for i in (0, 1, 4)]  # of one kind, 96 steps each
    now = [0.0]
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    how = Execution(device="cpu", jobs=2, minutes=10, whole=True)
    sweep = Scheduler(runs, Silent(runs), how)
    sweep._workers = workers = [Worker(MagicMock(), MagicMock()) for _ in range(2)]
    sweep._dispatch()
    for now[0], step in ((0, 0), (10, 16), (20, 32)):
        for worker in workers:
            sweep._receive(worker, ("steps", step))
    sweep._receive(workers[0], ("finished",))
    assert sweep._paces() == [workers[1].pace]
    assert (workers[1].pace.rate, workers[1].pace.sharing) == (pytest.approx(1.6), 2)
    now[0] = 523  # 10 s to start up and 66 s for the steps; the run that finished took 20 s
    assert sweep._next() == runs[2]
    now[0] = 525
    assert sweep._next() is None
    workers[1].run = None
    assert sweep._next() == runs[2]
    sweep._dispatch()
    assert [pace.first for pace in sweep._paces()] == [None]


@pytest.mark.parametrize("retries", [0, 2])
def test_ray_retries_a_task_as_often_as_asked(tmp_path, monkeypatch, retries):
    run = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[0]
    calls = []

    def execute(*args):
        calls.append(args)
        raise RuntimeError("it broke")

    monkeypatch.setattr(cluster, "execute", execute)
    threads = torch.get_num_threads()
    assert (
        cluster.run_task(run, False, "cpu", threads, retries, MagicMock())
        == "RuntimeError: it broke"
    )
    assert len(calls) == 1 + retries
    assert json.loads((run.folder / "failure.json").read_text())["attempts"] == 1 + retries


@pytest.mark.parametrize("gpus", [0, 1])
def test_sweep_learns_from_its_first_run_whether_runs_share_a_gpu(tmp_path, gpus):
    runs = read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs
    scheduler = Scheduler(runs, Silent(runs), Execution(device="cpu", jobs=2))
    scheduler._fit(MemoryUse(10**9, 10**10, 10**9, 10**11, gpus))
    assert scheduler.deadline.shared is (gpus > 0)
