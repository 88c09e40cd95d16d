"""`ssedb list`: what there is."""

import re

from ssedb import cli


def test_list_shows_bonuses_noises_and_environments(capsys, monkeypatch):
    def said(*args):
        assert cli.main(args) == 0
        return capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "100")
    envs = said("list", "envs")
    assert "alien" in envs
    assert "montezuma_revenge" in envs
    assert "random-box" in said("list", "noises")
    bonuses = said("list", "bonuses")
    assert re.search(r" db +5,129,537 +3,280,417 +5\.15M ", bonuses)
    assert re.search(r" icm +4,858,020 +4,858,020 +4\.86M ", bonuses)
    assert re.search(r" disagreement +28,154,528 +26,470,400 +26\.47M ", bonuses)
    assert re.search(r" rnd +3,881,280 +2,203,296 +- ", bonuses)
    assert max(map(len, bonuses.splitlines())) <= 100
    assert said("--version").strip() == "0.1.0"
    assert "ssedb COMMAND --help" in said()
