"""`ssedb bench`: its table."""

from ssedb.bench import Rates, SideBySide
from ssedb.cli.bench import print_rates
from tests.toy import tiny_config


def test_print_rates_shows_every_part_and_the_whole_beside_the_ideal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    speeds = {"emulator": 2000.0, "inference": 4000.0, "bonus": 4000.0, "update": 1000.0}
    speeds |= {"library": 1000.0, "trained": 250.0, "ideal": 500.0, "update, plain": 500.0}
    seconds = {"alone": [1.0, 1.0], "trained": [8.0, 8.0], "library": [2.0, 2.0]}
    print_rates(Rates(speeds, SideBySide(2000, seconds)), tiny_config("run"))
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    found = {name: value for name, value, _ in rows}
    assert list(found) == [
        "library", "emulator", "inference", "bonus", "update", "trained",
        "trained / library", "trained / emulator", "ideal", "trained / ideal", "update, plain",
    ]  # fmt: skip
    assert found["emulator"] == "2,000"
    assert found["trained / library"] == "0.250 +- 0.000"
    assert found["trained / emulator"] == "0.125 +- 0.000"
    assert found["trained / ideal"] == "0.500"
    assert rows[-1][2] == "ours is 2.00x as fast"
