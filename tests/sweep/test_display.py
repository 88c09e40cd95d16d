"""What a sweep shows: counts that add up, and an estimate from a short calibration."""

import re

import pytest

from ssedb import cli
from ssedb.sweep import display
from ssedb.sweep.display import Display
from ssedb.sweep.estimate import calibrate
from ssedb.sweep.grid import read_grid
from tests.sweep.grids import TOY, write_grid
from tests.toy import tiny_config


def test_counts_and_time_left(tmp_path, monkeypatch, capsys):
    runs = read_grid(write_grid(tmp_path)).runs  # 8 of 96 steps
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    with Display(runs[2:], finished_before=2) as shown:
        for run in runs[2:5]:
            shown.started(run)
        shown.stepped(runs[2].id, 32)  # taken up at step 32: not work of this sweep
        shown.stepped(runs[2].id, 64)
        shown.stepped(runs[3].id, 0)
        shown.stepped(runs[3].id, 64)
        shown.stepped(runs[3].id, 32)  # begun again
        now[0] = 12.0
        left = (6 * 96 - 64 - 64) / 8
        assert shown.line() == f"finished 2/8  time left 0:00:{int(left):02}  running 3  failed 0  8 steps/s"
        assert shown.line(width=40) == f"finished 2/8  time left 0:00:{int(left):02}"
        shown.ended(runs[2], "finished")
        shown.ended(runs[3], "failed")
        shown.ended(runs[4], "again")
        assert shown.line().startswith("finished 3/8  ")
        assert "  running 0  failed 1  " in shown.line()
        shown.note("[red] stays as it is")
    said = capsys.readouterr().err
    assert "[red] stays as it is" in said
    assert said.splitlines()[-1].startswith("finished 3/8  ")


def test_dry_run_estimates_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "runs"
    grid = write_grid(tmp_path, TOY.replace("steps = 96", "steps = 96_000"))
    assert cli.main(["sweep", str(grid), "--out", str(out), "--dry-run", "--jobs", "2", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "8 runs" in said
    assert "8 to do" in said
    assert "768,000 (the longest run 96,000)" in said
    assert re.search(r"time +about \d+:\d\d:\d\d, 2 runs at a time on \d+ cores", said)
    assert re.search(r"disk +about \d+ MB", said)
    assert not out.exists()


def test_the_estimate_knows_the_look_around(tmp_path):
    short, long = (calibrate(tiny_config(tmp_path, env="rooms-small", obs_norm_steps=n)) for n in (512, 5_000_000))
    assert long.start > 20 * short.start
    config = tiny_config(tmp_path, env="rooms-small", steps=2560)
    assert short.seconds(config) == pytest.approx(short.start + 2560 * short.step)
