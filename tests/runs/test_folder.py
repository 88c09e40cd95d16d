"""The run folder: one owner, append-only metrics, no run lost."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ssedb
from ssedb import cli
from ssedb.errors import ConfigError, TrainingError
from ssedb.runs import checkpoint
from ssedb.runs.folder import ERROR_LOG, RunFolder
from ssedb.runs.lock import lock_folder
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from tests.toy import TINY, tiny_config


def created(config):
    run = RunFolder.create(config)
    run.start_logging(None)
    run.close()


def test_resume_from_checkpoints_of_unknown_provenance_is_refused(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match="already holds a run"):
        RunFolder.create(tiny_config(tmp_path / "run"))


def test_folder_in_use_is_refused_and_a_dead_owner_does_not_block_it(tmp_path):
    out = tmp_path / "run"
    code = (
        "import sys; from pathlib import Path;"
        "from ssedb.runs.folder import RunFolder; from ssedb.config import TrainConfig;"
        f"run = RunFolder.create(TrainConfig(out=Path({str(out)!r}))); run.start_logging(None);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout.readline() == "locked\n"
    with pytest.raises(ConfigError, match=f"in use by process {owner.pid}; wait for it"):
        RunFolder.reopen(out)
    owner.kill()
    owner.communicate()
    RunFolder.reopen(out).close()


def test_folder_that_holds_a_run_is_left_alone(tmp_path):
    config = tiny_config(tmp_path / "run")
    created(config)
    before = (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(ConfigError, match="already holds a run; go on with `ssedb train --resume"):
        RunFolder.create(tiny_config(tmp_path / "run", seed=5))
    assert (tmp_path / "run" / "config.toml").read_text() == before


def test_resume_keeps_the_settings(tmp_path):
    created(tiny_config(tmp_path / "run"))
    run = RunFolder.reopen(tmp_path / "run", steps=5000)
    run.start_logging({"steps": 0, "updates": 0})
    run.close()
    assert RunFolder.reopen(tmp_path / "run").config.steps == 5000  # remembered
    with pytest.raises(
        ConfigError,
        match="is a run with env=rooms-tiny, not alien; a resumed run keeps its settings",
    ):
        RunFolder.reopen(tmp_path / "run", env="alien")
    with pytest.raises(
        ConfigError,
        match="is a run with precision=bf16, not fp32; a resumed run keeps its settings",
    ):
        RunFolder.reopen(tmp_path / "run", precision="fp32")
    RunFolder.reopen(tmp_path / "run", device="cpu", engine="eager", checkpoint_minutes=3.0).close()
    options = {**tiny_config(tmp_path).bonus_options, "tau": 0.5}
    with pytest.raises(ConfigError, match=r"is a run with tau=0\.999, not 0\.5;"):
        RunFolder.reopen(tmp_path / "run", bonus_options=options)
    with pytest.raises(ConfigError, match="there is no folder"):
        RunFolder.reopen(tmp_path / "nothing")


def test_metrics_survive_torn_lines_and_resumes(tmp_path):
    config = tiny_config(tmp_path / "run")
    run = RunFolder.create(config)
    run.start_logging(None)
    run.save_checkpoint({}, {"steps": 0})
    for steps in (1, 2, 3):
        run.log({"steps": steps, "updates": steps, "score": None, "try": 1})
    run.close()
    path = tmp_path / "run" / "metrics.jsonl"
    with open(path, "a") as file:
        file.write('{"steps": 4, "upd')
    before = path.read_text()
    run = RunFolder.reopen(tmp_path / "run")
    run.start_logging({"steps": 2, "updates": 2})
    run.log({"steps": 3, "updates": 3, "score": 1.5, "try": 2})
    run.close()
    assert path.read_text().startswith(before + "\n")  # append-only, from a new line on
    assert json.loads(path.read_text().splitlines()[4])["event"] == "resume"
    rows = read_metrics(tmp_path / "run")
    assert [(r["steps"], r["try"]) for r in rows] == [(1, 1), (2, 1), (3, 2)]
    assert any((tmp_path / "run" / "tb").iterdir())


def test_wandb_where_it_is_missing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'ssedb\[wandb\]'"):
        RunFolder.create(tiny_config(tmp_path / "run", wandb=True))


@pytest.mark.parametrize(("name", "stays"), [("new", False), ("old", True), (".", True)])
def test_lock_removes_the_folder_only_if_it_made_it(tmp_path, monkeypatch, name, stays):
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    lock_folder(Path(name), create=True).close()
    assert Path(name).exists() == stays


def test_error_log_goes_when_the_run_continues(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    (run.path / ERROR_LOG).write_text("it broke")
    run.start_logging(None)
    run.close()
    assert not (run.path / ERROR_LOG).exists()


def test_train_from_python_into_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other files \(thesis.tex\); choose a new"):
        ssedb.train(tiny_config(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_train_into_a_folder_where_a_sweep_failed_is_allowed(tmp_path):
    for name in ("error.log", "log.txt", "failure.json", "origin.json"):
        (tmp_path / name).touch()
    RunFolder.create(tiny_config(tmp_path)).close()


@pytest.mark.parametrize("replaced", [False, True])
def test_run_whose_folder_is_moved_ends_and_leaves_the_place_alone(tmp_path, replaced):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    run.log({"steps": 1})
    run.save_checkpoint({}, {"steps": 1})
    run.path.rename(tmp_path / "elsewhere")
    others = None
    if replaced:
        others = RunFolder.create(tiny_config(tmp_path / "run"))
        others.start_logging(None)
        others.save_checkpoint({}, {"steps": 0})
    for write in (
        lambda: run.log({"steps": 2}),
        lambda: run.save_checkpoint({}, {"steps": 2}),
        lambda: run.write_summary({}),
    ):
        with pytest.raises(TrainingError, match="run is gone, moved or deleted while the run"):
            write()
    run.close()
    assert run.path.exists() == replaced
    assert [row["steps"] for row in read_metrics(tmp_path / "elsewhere")] == [1]
    if others is not None:
        assert [path.name for path in others.checkpoints.iterdir()] == ["step-000000000000.ckpt"]
        assert not read_metrics(others.path)
        others.close()


def test_train_whose_folder_is_replaced_does_not_point_to_the_other_run(
    tmp_path, monkeypatch, capsys
):
    out, log = tmp_path / "run", RunFolder.log

    def replaced(run, row):
        out.rename(tmp_path / "elsewhere")
        created(tiny_config(out))
        log(run, row)

    monkeypatch.setattr(RunFolder, "log", replaced)
    assert cli.main(["train", "--env", "rooms-tiny", *TINY, "--out", str(out)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("moved or deleted while the run trained; resume the run where it is now")


def test_run_whose_folder_is_moved_while_it_saves_says_so(tmp_path, monkeypatch):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)

    def moved(path):
        run.path.rename(tmp_path / "elsewhere")
        raise FileNotFoundError(errno.ENOENT, "No such file", str(path))

    monkeypatch.setattr(checkpoint, "write_whole", lambda path, *chunks: moved(path))
    with pytest.raises(TrainingError, match="run is gone, moved or deleted"):
        run.save_checkpoint({}, {"steps": 1})
    run.close()


def test_run_whose_checkpoints_are_lost_is_not_begun_again(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    run.save_checkpoint({}, {"steps": 0})
    run.log({"steps": 1})
    run.close()
    shutil.rmtree(run.checkpoints)
    with pytest.raises(ConfigError, match="has metrics and no checkpoint"):
        RunFolder.reopen(run.path)


def test_checkpoint_whose_data_is_damaged_is_not_the_one_that_is_kept(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    for steps in (1, 8):
        run.save_checkpoint({"steps": steps}, {"steps": steps})
    newest = run.checkpoints / "step-000000000008.ckpt"
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1  # of the data: the header is whole
    newest.write_bytes(content)
    state, _ = run.load_checkpoint(lambda text: None)
    assert state["steps"] == 1
    assert newest.exists()
    for steps in (3, 9):
        run.save_checkpoint({"steps": steps}, {"steps": steps})
    run.close()
    kept = sorted(path.name for path in run.checkpoints.iterdir())
    assert kept == ["step-000000000003.ckpt", "step-000000000009.ckpt"]


def test_resume_to_fewer_steps_is_judged_by_the_checkpoint_that_is_whole(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run", steps=128))
    run.start_logging(None)
    for steps in (32, 128):
        run.save_checkpoint({}, {"steps": steps})
    run.close()
    with pytest.raises(ConfigError, match="is at step 128 already; ask for more"):
        RunFolder.reopen(run.path, steps=64)
    newest = run.checkpoints / "step-000000000128.ckpt"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1  # of the data: the header is whole
    newest.write_bytes(content)
    RunFolder.reopen(run.path, steps=64).close()
    with pytest.raises(ConfigError, match="is at step 32 already; ask for more"):
        RunFolder.reopen(run.path, steps=31)


def test_reopen_that_fails_releases_the_folder(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run"))
    run.start_logging(None)
    run.close()
    try:
        RunFolder.reopen(run.path, bogus=1)
    except TypeError as error:
        kept = error  # as a notebook keeps the last one
    RunFolder.reopen(run.path).close()
    assert "bogus" in str(kept)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(num_envs=8), "num_envs=8 does not split over 3 processes; use a multiple of 3"),
        (
            dict(num_envs=12),
            "minibatch_envs=4 does not split over 3 processes; use a multiple of 3",
        ),
        (
            dict(num_envs=12, minibatch_envs=3, engine="fast"),
            "engine=fast: CUDA graphs are for one process",
        ),
        (
            dict(num_envs=12, minibatch_envs=3, device="cuda:1"),
            "device=cuda:1: several processes take a GPU each",
        ),
    ],
)
def test_settings_that_do_not_split_over_processes_are_refused_in_one_line(
    tmp_path, monkeypatch, changes, message
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ssedb.ConfigError) as error:
        RunFolder.create(tiny_config(tmp_path / "run", **changes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run with checkpoint, metrics, maps and curves."""
    out = tmp_path_factory.mktemp("finished") / "run"
    train(tiny_config(out))
    return out


def content(path):
    """What lies at a path, as bytes by name."""
    files = path.rglob("*") if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize(
    "name", [".lock", "error.log", "metrics.jsonl", "maps.jsonl", "checkpoints", "tb", "wandb"]
)
def test_resume_writes_through_no_link(finished, tmp_path, name):
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(finished, run)
    if (run / name).exists():
        (run / name).rename(other)
    else:
        other.write_text("of another")
    (run / name).symlink_to(other)
    before = content(other)
    with pytest.raises(ConfigError, match=f"{name} is no plain file or folder, .*; copy what"):
        resume(run, steps=1280)
    assert content(other) == before


@pytest.mark.parametrize("name", [".lock", "error.log", "metrics.jsonl", "checkpoints"])
def test_train_into_a_folder_with_a_link_writes_nothing_there(tmp_path, name):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match=f"{name} is no plain file or folder"):
        RunFolder.create(tiny_config(tmp_path / "run"))
    assert not (tmp_path / "other").exists()
