"""`ssedb sweep` that cannot begin: one line, and nothing written."""

import sys
from types import SimpleNamespace

from ssedb import cli
from tests.sweep.grids import write_grid


def test_sweep_into_a_folder_of_other_files_is_refused(tmp_path, capsys):
    grid, out = write_grid(tmp_path), tmp_path / "home"
    (out / "letters").mkdir(parents=True)
    for flags in ([], ["--dry-run"]):
        assert cli.main(["sweep", str(grid), "--out", str(out), *flags]) == 2
        said = capsys.readouterr().err
        assert said == (
            f"ssedb: {out} holds other files (letters); choose a new or an empty folder for --out\n"
        )
    assert [path.name for path in out.iterdir()] == ["letters"]


def test_sweep_of_whole_runs_needs_a_time_and_begins_none_without_any(tmp_path, capsys):
    command = ["sweep", str(write_grid(tmp_path)), "--out", str(tmp_path / "runs"), "--whole"]
    assert cli.main(command) == 2
    assert "whole: give the time with --minutes" in capsys.readouterr().err
    assert cli.main([*command, "--device", "cpu", "--minutes", "0"]) == 1
    said = capsys.readouterr()
    assert "not begun, too late to finish in 0 minutes: 8 runs" in said.err
    assert "8 of 8 runs not finished" in said.out
    assert not list((tmp_path / "runs").glob("*/"))


def test_sweep_without_its_cluster_leaves_nothing(tmp_path, capsys, monkeypatch):
    def init(**settings):
        raise ConnectionError("nobody answers")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init, __spec__=True)
    )
    out = tmp_path / "runs"
    assert cli.main(["sweep", str(write_grid(tmp_path)), "--out", str(out), "--ray", "foo"]) == 2
    assert (
        "no Ray at 'foo': nobody answers; start one with `ray start --head`"
        in capsys.readouterr().err
    )
    assert not out.exists()
