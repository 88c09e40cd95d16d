"""`ssedb train`: its summary and what it resumes."""

from dataclasses import asdict
from pathlib import Path

from ssedb.cli.train import print_run
from ssedb.runs.alarms import Alarm
from ssedb.runs.loop import TrainResult
from tests.toy import tiny_config


def test_summary_shows_the_rank_of_z_and_names_that_of_the_encoded_states(capsys):
    last = {"sps": 100.0, "rank_z": 7.9, "rank_state": 204.0}
    summary = {"last": last, "score": None, "score_best": None, "episodes": 0}
    print_run(TrainResult(Path("run"), 256, True, summary), tiny_config("run"))
    rows = [
        line.strip(" │|").split("│")
        for line in capsys.readouterr().out.splitlines()
        if "rank" in line
    ]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["rank of z, the representation", "7.900"],
        ["rank of the encoded states", "204.000"],
    ]


def test_summary_run_on_rooms_shows_how_much_was_seen(capsys):
    last = {"sps": 100.0, "states_share": 0.25, "rooms_share": 0.5}
    summary = {"last": last, "score": None, "score_best": None, "episodes": 0}
    print_run(TrainResult(Path("run"), 256, True, summary), tiny_config("run"))
    lines = [line for line in capsys.readouterr().out.splitlines() if "seen" in line]
    assert [line.split()[-2] for line in lines] == ["0.250", "0.500"]


def test_summary_run_with_an_alarm_tells_it_with_the_remedy(capsys):
    alarm = Alarm("entropy", since=1000, until=9000, stands=True, value=0.01)
    summary = {"last": {}, "score": None, "score_best": None, "episodes": 0}
    summary["alarms"] = [asdict(alarm)]
    print_run(TrainResult(Path("run"), 9000, True, summary), tiny_config("run"))
    assert "ALARM: entropy of the policy 0.01: it has been under 0.08 for 8,000 steps" in (
        capsys.readouterr().out
    )
