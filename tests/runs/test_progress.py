"""What a run shows while it runs."""

from ssedb.runs import progress
from tests.toy import tiny_config


def test_display_standing_alarm_is_in_every_line(capsys):
    shown = progress.console()
    shown.start(0, tiny_config("run", steps=256))
    row = {"steps": 256, "score": None, "bonus_raw": 1.0, "entropy": 0.012}
    shown.log({**row, "alarms": ["entropy"]})
    shown.log(row)
    first, second = capsys.readouterr().err.splitlines()
    assert "ALARM entropy 0.01  score -" in first
    assert "ALARM" not in second
