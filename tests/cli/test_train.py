"""`ssedb train`: its summary and what it resumes."""

from pathlib import Path

from ssedb.cli.train import print_run
from ssedb.runs.loop import TrainResult
from tests.toy import tiny_config


def test_the_summary_shows_the_rank_of_z_and_names_that_of_the_encoded_states(capsys):
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
