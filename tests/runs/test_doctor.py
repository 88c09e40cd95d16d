"""`ssedb doctor`: what a folder holds, what is damaged, and what a resume would do."""

import os
import shutil
from contextlib import closing

import pytest

from ssedb import cli
from ssedb.errors import ConfigError
from ssedb.runs import checkpoint
from ssedb.runs.doctor import examine
from ssedb.runs.lock import lock_folder
from tests.faults.forks import small_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("doctor") / "run"
    small_run(out, steps=64)
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def told(run, capsys):
    """Return the exit code and the lines by their first two words."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code = cli.main(["doctor", str(run)])
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    lines = [line.split(None, 2) for line in capsys.readouterr().out.splitlines()]
    return code, {name: (state, text) for state, name, text in lines}


def newest(run):
    return checkpoint.list_checkpoints(run / "checkpoints")[-1]


def test_doctor_finished_run_has_nothing_left_to_do(run, capsys):
    code, found = told(run, capsys)
    assert code == 0
    assert {state for state, _ in found.values()} == {"good"}
    assert found["config.toml"][1] == "env rooms-tiny, noise random-box, bonus db, seed 0"
    assert found["checkpoints/step-000000000064.ckpt"][1].startswith("whole, step 64, ")
    assert found["metrics.jsonl"][1] == "2 rows up to step 64"
    assert found["summary.json"][1] == "finished at step 64"
    assert found["resume"] == ("good", "nothing left to do")


def damage(path):
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def edit_config(run, old, new):
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new))


def edit_checkpoint(path, **settings):
    """Save a checkpoint again, as of a run with other settings."""
    state, about = checkpoint.load_latest(path.parent)
    checkpoint.save(path.parent, state, {**about, "settings": {**about["settings"], **settings}})


def link(path):
    path.rename(path.parent.parent / path.name)
    path.symlink_to(path.parent.parent / path.name)


@pytest.mark.parametrize(
    ("break_it", "name", "state", "text", "resume"),
    [
        (
            lambda run: link(run / "tb"),
            "summary.json",
            "good",
            "finished at step 64",
            "refused; RUN/tb is no plain file or folder",
        ),
        (
            lambda run: damage(newest(run)),
            "checkpoints/step-000000000064.ckpt",
            "bad",
            "is damaged (its checksum does not match)",
            "goes on from step 32: ssedb train --resume",
        ),
        (
            lambda run: (run / "summary.json").unlink(),
            "summary.json",
            "note",
            "not there: the run has not ended",
            "writes the missing summary: ssedb train --resume",
        ),
        (
            lambda run: (run / "summary.json").write_text('{"steps": "many"}'),
            "summary.json",
            "bad",
            "cannot be read; a resume writes it again",
            "writes the missing summary",
        ),
        (
            lambda run: shutil.rmtree(run / "checkpoints"),
            "metrics.jsonl",
            "good",
            "2 rows up to step 64",
            "impossible, the checkpoints are lost; put them back",
        ),
        (
            lambda run: (run / "config.toml").write_bytes(b"env = \xff"),
            "config.toml",
            "bad",
            "cannot be read: 'utf-8' codec",
            "impossible without config.toml",
        ),
        (
            lambda run: (run / "config.toml").write_text(""),
            "config.toml",
            "bad",
            "names no env",
            "impossible without config.toml",
        ),
        (
            lambda run: (run / "metrics.jsonl").write_text(""),
            "metrics.jsonl",
            "bad",
            "0 rows up to step 0, but a checkpoint is of step 64: the rows between are lost",
            "nothing left to do",
        ),
        (
            lambda run: (run / "metrics.jsonl").open("ab").write(b'{"steps": 96, "upd'),
            "metrics.jsonl",
            "note",
            "line 3 of metrics.jsonl, the last one, is cut; readers leave",
            "nothing left to do",
        ),
        (
            lambda run: (run / "maps.jsonl").write_bytes(b"\xff\n"),
            "maps.jsonl",
            "bad",
            "line 1 of maps.jsonl, the last one, cannot be read; readers leave",
            "nothing left to do",
        ),
        (
            lambda run: (run / "metrics.jsonl").open("ab").write(b'{"steps": 96, "upd\n\xff\n'),
            "metrics.jsonl",
            "bad",
            "line 3 of metrics.jsonl, the last one, cannot be read; readers leave",
            "nothing left to do",
        ),
        (
            lambda run: (run / "checkpoints" / ".step-000000000096.ckpt.part").touch(),
            ".step-000000000096.ckpt.part",
            "note",
            "half-written, of a killed process; a resume removes it",
            "nothing left to do",
        ),
        (
            lambda run: edit_config(run, "seed = 0", "seed = 5"),
            "checkpoints/step-000000000064.ckpt",
            "bad",
            "of a run with seed=0, and config.toml says 5",
            "refused; correct config.toml",
        ),
        (
            lambda run: edit_config(run, "gamma = 0.99", "gamma = 0.9"),
            "config.toml",
            "bad",
            "says gamma=0.9, all checkpoints 0.99; set it back",
            "refused; correct config.toml",
        ),
        (
            lambda run: edit_config(run, "gamma = 0.99", 'gamma = "x"'),
            "config.toml",
            "bad",
            "gamma='x': must be a finite number; put back the file as the run wrote it",
            "refused; correct config.toml",
        ),
        (
            lambda run: edit_config(run, "gamma = 0.99", "gamma = 0.99\nfoo = 3"),
            "config.toml",
            "bad",
            "has the unknown setting 'foo', perhaps of another version of ssedb; put back",
            "refused; correct config.toml",
        ),
        (
            lambda run: edit_checkpoint(newest(run), seed=5),
            "checkpoints/step-000000000064.ckpt",
            "bad",
            "of a run with seed=5, and config.toml says 0",
            "refused; take checkpoints/step-000000000064.ckpt out of the folder",
        ),
        (
            lambda run: (run / "error.log").touch(),
            "error.log",
            "note",
            "an earlier attempt ended with an error",
            "nothing left to do",
        ),
    ],
)
def test_doctor_names_what_is_wrong_and_what_resume_does(
    run, capsys, break_it, name, state, text, resume
):
    break_it(run)
    code, found = told(run, capsys)
    assert found[name][0] == state
    assert found[name][1].startswith(text)
    assert found["resume"][1].startswith(resume.replace("RUN", str(run)))
    assert code == (1 if any(state == "bad" for state, _ in found.values()) else 0)


def test_doctor_calls_no_file_missing_that_a_run_has_not_begun(run, capsys):
    for path in ("metrics.jsonl", "checkpoints"):
        shutil.move(run / path, run.parent / path)
    code, found = told(run, capsys)
    assert (code, found["metrics.jsonl"]) == (1, ("bad", "missing"))  # the summary says it ended
    (run / "summary.json").unlink()
    code, found = told(run, capsys)
    assert (code, found["metrics.jsonl"]) == (0, ("note", "not there: no iteration has ended"))
    assert found["resume"][1].startswith("begins the run anew")
    shutil.move(run.parent / "checkpoints", run / "checkpoints")
    code, found = told(run, capsys)
    assert (code, found["metrics.jsonl"]) == (1, ("bad", "missing"))


def test_doctor_tells_rows_that_are_written_again(run, capsys):
    rows = (run / "metrics.jsonl").read_text().splitlines()
    again = ['{"event": "resume", "steps": 32, "updates": 1}', rows[-1]]
    lines = [*rows, *again * 3]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    text = "2 rows up to step 64; resumes replaced 3 more"
    assert told(run, capsys)[1]["metrics.jsonl"] == ("good", text)
    newest(run).unlink()
    _, found = told(run, capsys)
    assert found["metrics.jsonl"][1] == f"{text}; those after step 32 will be written again"


@pytest.mark.parametrize(
    ("name", "resume"),
    [(".lock", "refused; "), ("config.toml", "impossible without config.toml")],
)
def test_doctor_waits_for_no_pipe(run, capsys, name, resume):
    (run / name).unlink()
    os.mkfifo(run / name)
    code, found = told(run, capsys)
    assert found["resume"][1].startswith(resume)
    assert code == 1


def test_doctor_does_not_call_checkpoints_lost_that_it_may_not_read(run, capsys, monkeypatch):
    def denied(folder):
        raise ConfigError(f"cannot read {folder}: Permission denied; make it readable")

    monkeypatch.setattr(checkpoint, "list_checkpoints", denied)
    code, found = told(run, capsys)
    assert found["checkpoints"][1].endswith("Permission denied; make it readable")
    assert found["resume"][1].startswith("impossible, no checkpoint can be used; mend what is said")
    assert code == 1


def test_doctor_tells_a_run_that_is_in_use(run, capsys):
    with closing(lock_folder(run, create=False)):
        _, found = told(run, capsys)
    assert found[".lock"][1].startswith("in use by process ")
    assert ".lock" not in {finding.name for finding in examine(run)}


def test_doctor_imports_no_module_that_a_folder_names(run, capsys, tmp_path, monkeypatch):
    (tmp_path / "evilmod.py").write_text("raise SystemError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    edit_config(run, 'bonus = "db"', 'bonus = "evilmod:\\u001bX"')
    shutil.rmtree(run / "checkpoints")  # which would tell that the file was edited
    code, found = told(run, capsys)
    assert found["config.toml"][1].endswith(
        "bonus evilmod:\\x1bX, seed 0; resume imports the bonus's module"
    )
    assert code == 1


def test_doctor_without_a_run_checks_the_installation(capsys, monkeypatch):
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert all(f" {name} " in said for name in ("ssedb", "torch", "atari", "report", "export"))
    monkeypatch.setattr("ssedb.runs.doctor.find_spec", lambda name: None)
    assert cli.main(["doctor"]) == 0
    assert "not installed: safetensors; `pip install 'ssedb[export]'`" in capsys.readouterr().out
    monkeypatch.setattr("ssedb.envs.names.atari_games", lambda: ("alien",))
    assert cli.main(["doctor"]) == 1
    assert "no ROM of asteroids" in capsys.readouterr().out


def test_doctor_of_nothing_is_a_mistake(tmp_path, capsys):
    assert cli.main(["doctor", str(tmp_path / "nothing")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_doctor_folder_of_several_runs_names_one_of_them(run, capsys):
    shutil.copytree(run, run.parent / "other")
    assert cli.main(["doctor", str(run.parent)]) == 2
    said = f"ssedb: {run.parent} holds 2 runs, and is none; name one of them, such as "
    assert capsys.readouterr().err == f"{said}{run.parent / 'other'}\n"
