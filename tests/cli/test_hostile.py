"""Run folders from others: they run no code, command no terminal, and show no other folder."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from ssedb import cli, terminal
from ssedb.runs import files
from tests.compare.test_results import make_run
from tests.sweep.grids import write_grid

EVIL = "from pathlib import Path; Path(__file__).with_name('ran').touch()"
ESCAPE = "\x1b[2Jboo\x07"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder with a module, and a run whose settings name it as bonus, noise and environment."""
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    for name, old in (("bonus", "db"), ("noise", "none"), ("env", "rooms-small")):
        config = make_run(tmp_path / "runs" / name) / "config.toml"
        text = config.read_text().replace(f'{name} = "{old}"', f'{name} = "evilmod:X"')
        config.write_text(text)
        (config.parent / "checkpoints").mkdir()
        (config.parent / "checkpoints" / "step-000000000256.ckpt").touch()
    return tmp_path


@pytest.mark.parametrize("name", ["bonus", "noise", "env"])
@pytest.mark.parametrize(
    "command",
    ["eval RUN", "train --resume RUN", "analyze probe RUN", "analyze spikes RUN"],
)
def test_commands_import_nothing_from_the_current_folder(evil, name, command, capsys):
    assert cli.main(command.replace("RUN", f"runs/{name}").split()) == 2
    said = capsys.readouterr().err
    assert f"{name}='evilmod:X': cannot import 'evilmod'" in said
    assert said.endswith("if it is the one in this folder, set PYTHONPATH=.\n")
    assert said.count("\n") == 1
    assert not (evil / "ran").exists()


def test_python_m_ssedb_imports_from_pythonpath_and_says_so(evil):
    command = [sys.executable, "-m", "ssedb", "train", "--bonus", "evilmod:X"]
    package = os.path.dirname(os.path.dirname(cli.__file__))
    for path, ran in ((os.path.dirname(package), False), (f".:{os.path.dirname(package)}", True)):
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert (evil / "ran").exists() == ran
        assert (f"importing evilmod from {evil}/evilmod.py, which bonus=" in done.stderr) == ran


def test_stats_and_report_import_nothing_wherever_it_lies(evil, monkeypatch, capsys):
    monkeypatch.syspath_prepend(evil)
    assert cli.main(["stats", "runs", "--no-figures"]) == 0
    assert cli.main(["report", "runs", "--episodes", "0"]) == 0
    assert "evilmod" not in sys.modules
    assert not (evil / "ran").exists()
    assert "--bonus evilmod:X" in (evil / "report" / "index.html").read_text()


def test_sweep_dry_run_imports_nothing_that_a_run_folder_names(evil, monkeypatch, capsys):
    monkeypatch.syspath_prepend(evil)
    (evil / "runs" / "plan.json").write_text("{}")
    grid = str(write_grid(evil))
    monkeypatch.setattr("ssedb.sweep.estimate.print_estimate", lambda *args: None)
    assert cli.main(["sweep", grid, "--out", "runs", "--dry-run"]) == 0
    assert not (evil / "ran").exists()


def test_control_characters_reach_neither_the_terminal_nor_the_tables(tmp_path, capsys):
    runs = tmp_path / "runs"
    for seed, options in enumerate(({"alpha1": 0.1}, {"alpha1": 0.2})):
        run = make_run(runs / f"{ESCAPE}-{seed}", seed=seed, bonus_options=options)
        (run / "origin.json").write_text(json.dumps({"code": f"{ESCAPE}{seed}"}))
    failed = make_run(runs / "failed", seed=2, finished=False)
    (failed / "failure.json").write_text(json.dumps({"error": f"<b>{ESCAPE}|"}))
    text = (failed / "config.toml").read_text()
    hostile = text.replace("[bonus_options]", '[bonus_options]\n"\\u001b[2J" = "\\u001b[2J"')
    (failed / "config.toml").write_text(hostile)
    assert cli.main(["stats", str(runs), "--no-figures"]) == 0
    assert cli.main(["report", str(runs), "--out", str(tmp_path / "r"), "--episodes", "0"]) == 0
    assert cli.main(["eval", str(runs / f"{ESCAPE}-0")]) == 2
    assert cli.main(["eval", str(failed)]) == 2
    said = capsys.readouterr()
    table = (runs / "stats" / "tables.md").read_text()
    for output in (said.out, said.err, table):
        assert "\\x1b[2J" in output
        assert all(letter.isprintable() or letter == "\n" for letter in output)
    assert "&lt;b>" in table


def test_control_characters_in_the_name_of_a_folder_do_not_reach_the_terminal(tmp_path, capsys):
    folder = make_run(tmp_path / "run\x1b]0;title\a")
    terminal.print_places({"run folder": folder})
    assert cli.main(["stats", str(folder), "--no-figures"]) == 0
    output = capsys.readouterr().out
    assert "run\\x1b]0;title\\x07/stats: tables.md" in output
    assert all(letter.isprintable() or letter == "\n" for letter in output)


@pytest.mark.parametrize("command", ["report runs --out here/page", "stats runs --out here/page"])
def test_out_that_cannot_be_written_is_found_before_anything_is_read(
    tmp_path, monkeypatch, capsys, command
):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "run")
    (tmp_path / "here").mkdir()

    def full(dir):
        assert os.path.samefile(dir, "here")
        raise OSError(28, "No space left on device")

    def too_early(*folders):
        raise AssertionError("the runs are read first")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    monkeypatch.setattr("ssedb.report.make.load_runs", too_early)
    monkeypatch.setattr("ssedb.compare.results.load_runs", too_early)
    assert cli.main(command.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("ssedb: cannot write to here/page")
    assert said.endswith(": No space left on device; free some space there\n")
    (tmp_path / "file").touch()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert cli.main(command.replace("here", "file").split()) == 2
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report runs --episodes 0", "stats runs --no-figures"])
def test_disk_that_gets_full_is_one_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "run")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert cli.main(command.split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ssedb: ")
    assert said.endswith("No space left on device; free some space there")
