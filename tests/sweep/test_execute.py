"""One run of a plan, from wherever it stands."""

import dataclasses
import functools
import json

import pytest

from ssedb import train
from ssedb.analysis import probe
from ssedb.errors import ConfigError, FolderInUse, TrainingError
from ssedb.runs.folder import RunFolder
from ssedb.runs.progress import silent
from ssedb.sweep import execute as module
from ssedb.sweep import plan
from ssedb.sweep.execute import execute
from ssedb.sweep.grid import read_grid
from ssedb.sweep.plan import is_finished, unplanned_runs
from tests.outside import forget_package, write_package
from tests.sweep.grids import numbers, write_grid
from tests.toy import tiny_config


def test_execute_leaves_a_finished_run_of_another_name_alone(tmp_path):
    path, root = write_grid(tmp_path), tmp_path / "runs"
    first = read_grid(path, root, {"device": "cpu"}).runs[0]
    assert execute(first, False, "cpu", silent)
    old = first.folder.rename(root / "rooms-small-none-db-s0-01234567")
    again = read_grid(path, root, {"device": "cpu"})
    assert again.runs[0].folder == old
    assert is_finished(again.runs[0], probe=False)
    assert unplanned_runs(again, root) == []


@pytest.fixture
def run(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(probe, "FALL_BATCH", 8)
    monkeypatch.setattr(
        probe, "probe_run", functools.partial(probe.probe_run, transitions=128, draws=2)
    )
    return read_grid(write_grid(tmp_path), tmp_path / "runs", {"device": "cpu"}).runs[0]


def test_execute_trains_then_probes_then_leaves_alone(run):
    assert execute(run, False, "cpu", silent)
    assert is_finished(run, probe=False)
    assert not is_finished(run, probe=True)
    metrics = (run.folder / "metrics.jsonl").read_bytes()
    (run.folder / "failure.json").write_text("{}")  # of an earlier try
    assert execute(run, True, "cpu", silent)
    assert is_finished(run, probe=True)
    assert json.loads((run.folder / "probe.json").read_text())["steps"] == 96
    assert (run.folder / "metrics.jsonl").read_bytes() == metrics  # probed, not trained again
    assert not (run.folder / "failure.json").exists()
    before = (run.folder / "probe.json").stat().st_mtime_ns
    assert execute(run, True, "cpu", silent)
    assert (run.folder / "probe.json").stat().st_mtime_ns == before
    numbers(run.folder)


def test_execute_waits_for_a_folder_in_use(run, monkeypatch):
    holder = RunFolder.create(run.config)
    monkeypatch.setattr(module, "WAIT_FOR_FOLDER", 0.0)
    with pytest.raises(FolderInUse, match="is in use by process"):
        execute(run, False, "cpu", silent)
    monkeypatch.setattr(module, "WAIT_FOR_FOLDER", 60.0)
    monkeypatch.setattr(
        module.time, "sleep", lambda seconds: holder.close()
    )  # it ends while we wait
    assert execute(run, False, "cpu", silent)


def test_execute_resumes_with_the_engine_of_the_run(run):
    before = dataclasses.replace(run, config=dataclasses.replace(run.config, engine="eager"))
    assert execute(before, False, "cpu", silent)
    (run.folder / "summary.json").unlink()  # as if it had not got to its end
    assert execute(run, False, "cpu", silent)
    assert 'engine = "eager"' in (run.folder / "config.toml").read_text()


def test_execute_does_not_retry_what_would_come_again():
    for error in (TrainingError("bonus_loss is nan"), ConfigError("steps=0")):
        assert not module.may_succeed_on_retry(error)
    for error in (RuntimeError("CUDA error"), OSError("disk full"), MemoryError()):
        assert module.may_succeed_on_retry(error)


@pytest.mark.parametrize(
    ("settings", "message", "again"),
    [
        (
            {"env": "strangeworlds:Stuck-v0", "env_kwargs": {"dies": True}, "env_workers": 2},
            "has died",
            True,
        ),
        (
            {"env": "strangeworlds:Walker-v0", "env_kwargs": {"fails_at": 4}, "env_workers": 0},
            "Walker.step raised",
            True,
        ),
        (
            {"env": "strangeworlds:Walker-v0", "env_kwargs": {"fails_at": 4}, "env_workers": 2},
            "Walker.step raised",
            True,
        ),
        (
            {"env": "rooms-small", "bonus": "strangebonus:Column", "bonus_options": {}},
            "Column.reward gave shape",
            False,
        ),
        (
            {"env": "rooms-small", "bonus": "strangebonus:Forgetful", "bonus_options": {}},
            "Forgetful.observe raised",
            False,
        ),
    ],
    ids=[
        "process dies",
        "environment raises",
        "environment raises in its process",
        "bonus of a wrong shape",
        "bonus raises",
    ],
)
def test_execute_retries_what_may_pass(tmp_path, monkeypatch, settings, message, again):
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(TrainingError, match=message) as caught:
            train(tiny_config(tmp_path / "run", obs_norm_steps=8, **settings))
    finally:
        forget_package()
    assert module.may_succeed_on_retry(caught.value) == again


def test_execute_leaves_out_the_probe_of_an_untrained_bonus(run):
    assert plan.lacks_probe(run)
    run.folder.mkdir(parents=True)
    for fresh in (True, False):
        (run.folder / "probe.json").write_text(json.dumps({"fresh": fresh}))
        assert plan.lacks_probe(run) == fresh


@pytest.mark.parametrize(
    ("env", "noise", "measured"),
    [("breakout", "sticky", False), ("breakout", "pixel", True), ("rooms-small", "sticky", True)],
)
def test_plan_asks_for_a_probe_where_it_can_measure(run, env, noise, measured):
    config = dataclasses.replace(run.config, env=env, noise=noise)
    assert plan.lacks_probe(dataclasses.replace(run, config=config)) == measured


def test_execute_adds_the_code_that_resumes_a_run(run, monkeypatch):
    run.folder.mkdir(parents=True)
    noted = []
    for code in ("first", "second", "second", "first"):
        monkeypatch.setattr(plan, "code_version", lambda code=code: code)
        plan.note_provenance(run)
        origin = json.loads((run.folder / "origin.json").read_text())
        noted.append((origin["code"], origin["later"]))
    assert noted == [
        ("first", []),
        ("first", ["second"]),
        ("first", ["second"]),
        ("first", ["second"]),
    ]


def test_execute_does_not_touch_a_folder_of_other_settings(run):
    assert execute(run, False, "cpu", silent)
    config = run.folder / "config.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.9"))
    before = (run.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(
        ConfigError, match="holds a run of other settings, or a damaged one; move it away"
    ):
        execute(run, False, "cpu", silent)
    assert (run.folder / "metrics.jsonl").read_bytes() == before


def test_execute_of_a_run_that_does_not_count_as_finished_fails_and_says_why(run):
    assert execute(run, False, "cpu", silent)
    log = run.folder / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"steps": 64', b'"steps": \xff4'))
    before = log.read_bytes()
    with pytest.raises(
        TrainingError, match=r"not finished: line 2 of metrics\.jsonl cannot be"
    ) as e:
        execute(run, False, "cpu", silent)
    assert not module.may_succeed_on_retry(e.value)
    assert log.read_bytes() == before


def test_execute_of_a_run_with_a_damaged_summary_writes_it_again(run):
    assert execute(run, False, "cpu", silent)
    for text in ("", '{"finished": 1, "steps": "96"}'):
        (run.folder / "summary.json").write_text(text)
        assert not is_finished(run, probe=False)
        assert execute(run, False, "cpu", silent)
        assert is_finished(run, probe=False)


def test_read_grid_and_execute_import_nothing_that_only_a_run_folder_names(
    tmp_path, run, monkeypatch
):
    (tmp_path / "evilmod.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    for folder in (run.folder, run.folder.parent / "other"):
        folder.mkdir(parents=True)
        text = run.config.to_toml().replace('bonus = "db"', 'bonus = "evilmod:X"')
        (folder / "config.toml").write_text(text)
        (folder / "summary.json").write_text('{"finished": true, "steps": 96}')
    again = read_grid(tmp_path / "toy.toml", tmp_path / "runs", {"device": "cpu"}).runs[0]
    assert not is_finished(again, probe=False)
    with pytest.raises(ConfigError, match="holds a run of other settings"):
        execute(again, False, "cpu", silent)
    assert not (tmp_path / "ran").exists()


def test_threads_are_those_of_the_plan_however_many_runs_are_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(plan, "cores", lambda: 16)
    grid = read_grid(write_grid(tmp_path), tmp_path / "runs")  # 8 runs
    root = tmp_path / "runs"
    usual = plan.share_of_cores(grid, None)
    assert (usual, plan.share_of_cores(grid, 4)) == (2, 4)
    plan.write_plan(grid, root, plan.threads_of(root, usual))
    assert json.loads((root / "plan.json").read_text())["threads"] == 2
    assert plan.threads_of(root, usual=16) == 2  # as on another machine, or by --jobs 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert plan.threads_of(root, usual) == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    (root / "plan.json").write_text('{"threads": "many"}')
    assert plan.threads_of(root, usual) == 2


def test_steps_tell_of_alarms_and_of_no_other_note():
    told = []
    steps = module.Steps(lambda *message: told.append(message))
    steps.start(32, None)
    steps.note("resumed at step 32")
    steps.note("ALARM at step 64: entropy of the policy 0.01")
    steps.log({"steps": 64})
    assert told == [
        ("steps", 32),
        ("alarm", "ALARM at step 64: entropy of the policy 0.01"),
        ("steps", 64),
    ]
