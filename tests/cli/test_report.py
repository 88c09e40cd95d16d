"""`ssedb report` that cannot begin."""

import re

import pytest

from ssedb import cli


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["report"], "no folder of runs is named|runs"),
        (["report", "/nonexistent"], "there is no folder /nonexistent"),
        (["report", ".", "--episodes", "-1"], "episodes=-1: must be 0 or more"),
    ],
)
def test_report_with_a_mistake_ends_in_one_line(args, message, capsys):
    assert cli.main(args) == 2
    assert re.search(message, capsys.readouterr().err)


def test_report_of_a_folder_without_runs_is_refused(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
