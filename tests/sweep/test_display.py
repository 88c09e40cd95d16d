"""What a sweep shows: counts that add up, and an estimate from a short calibration."""

import re

import pytest

from ssedb import cli
from ssedb.runs import checkpoint
from ssedb.sweep import display, estimate
from ssedb.sweep.display import Display
from ssedb.sweep.estimate import Cost, calibrate
from ssedb.sweep.grid import read_grid
from tests.sweep.grids import TOY, write_grid
from tests.toy import tiny_config


def line(shown):
    return "  ".join(shown.parts())


def test_display_shows_counts_and_time_left(tmp_path, monkeypatch, capsys):
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
        assert line(shown) == (
            f"finished 2/8  time left 0:00:{int(left):02}  running 3  failed 0  8 steps/s"
        )
        shown.ended(runs[2], "finished")
        shown.ended(runs[3], "failed")
        shown.ended(runs[4], "again")
        assert line(shown).startswith("finished 3/8  ")
        assert "  running 0  failed 1  " in line(shown)
        shown.note("[red] stays as it is")
    said = capsys.readouterr().err
    assert "[red] stays as it is" in said
    assert said.splitlines()[-1].startswith("finished 3/8  ")


def test_display_leaves_out_the_time_of_failed_runs(tmp_path, monkeypatch):
    runs = read_grid(write_grid(tmp_path)).runs[:2]  # of 96 steps
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown = Display(runs, finished_before=0)
    for run in runs:
        shown.started(run)
        shown.stepped(run.id, 0)
        shown.stepped(run.id, 32)
    now[0] = 16.0
    assert (
        line(shown) == "finished 0/2  time left 0:00:32  running 2  failed 0  4 steps/s"
    )  # 2 x 64 steps
    shown.ended(runs[0], "failed")
    assert line(shown) == "finished 0/2  time left 0:00:16  running 1  failed 1  4 steps/s"


def test_estimate_adds_up(tmp_path, monkeypatch, capsys):
    cost = Cost(start=40.0, step=0.01, checkpoint=1_000_000, row=1000)
    monkeypatch.setattr(estimate, "calibrate", lambda config: cost)
    path = write_grid(tmp_path, TOY.replace("steps = 96", "steps = 96_000"))
    flags = ["--dry-run", "--jobs", "4", "--device", "cpu"]
    assert cli.main(["sweep", str(path), "--out", str(tmp_path / "runs"), *flags]) == 0
    said = capsys.readouterr().out
    assert "time         about 0:33:20, 4 runs at a time" in said  # 8 x (40 s + 960 s) / 4
    disk = 8 * (checkpoint.KEEP * 1e6 + 2.5 * 1000 * 3000) / 1e6  # 3000 updates of 32 steps
    assert f"disk         about {disk:.1f} MB" in said


def test_dry_run_estimates_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "runs"
    grid = write_grid(tmp_path, TOY.replace("steps = 96", "steps = 96_000"))
    flags = ["--dry-run", "--jobs", "2", "--device", "cpu"]
    assert cli.main(["sweep", str(grid), "--out", str(out), *flags]) == 0
    said = capsys.readouterr().out
    assert "8 runs" in said
    assert "8 to do" in said
    assert "768,000 (the longest run 96,000)" in said
    assert re.search(r"time +about \d+:\d\d:\d\d, 2 runs at a time on \d+ cores", said)
    assert re.search(r"disk +about \d+\.\d MB", said)
    assert not out.exists()


def test_estimate_includes_the_observation_statistics(tmp_path):
    short, long = (
        calibrate(tiny_config(tmp_path, env="rooms-small", obs_norm_steps=n))
        for n in (512, 5_000_000)
    )
    assert long.start > 20 * short.start
    config = tiny_config(tmp_path, env="rooms-small", steps=2560)
    assert short.seconds(config) == pytest.approx(short.start + 2560 * short.step)
