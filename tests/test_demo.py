"""The demo in small: every method runs, the table names the best honestly, the picture is drawn."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from ssedb import cli
from ssedb.demo import Result, print_table


def test_demo_end_to_end(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert (
        cli.main(["demo", "--steps", "1024", "--seeds", "1", "--out", str(tmp_path / "demo")]) == 0
    )
    out = capsys.readouterr().out
    assert "noise in the bonus: lowest for" in out
    assert str(tmp_path / "demo" / "demo.png") in out.replace("\n", "")
    runs = json.loads((tmp_path / "demo" / "demo.json").read_text())["runs"]
    assert [r["method"] for r in runs] == ["db", "rnd", "random"]
    for run in runs:
        assert run["rows"][-1]["steps"] == 1024
        assert run["rows"][-1]["states_share"] > run["rows"][0]["states_share"] - 1e-9
        assert ("noise_share" in run["rows"][-1]) == (run["method"] != "random")
        assert sum(run["visits"]) >= 1024
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 20_000


def test_the_table_says_who_is_best_even_if_it_is_a_rival():
    def row(share, states):
        return {
            "noise_share": share,
            "feature_noise_share": share,
            "count_correlation": -share,
            "states_share": states,
        }

    results = [
        Result("db", 0, [row(0.9, 0.1)]),
        Result("db", 1, [row(0.7, 0.3)]),
        Result("rnd", 0, [row(0.2, 0.1)]),
    ]
    results.append(Result("random", 0, [{"states_share": 0.5}]))
    console = Console(record=True, width=160)
    print_table(console, results)
    text = console.export_text()
    assert "0.80 (0.70 to 0.90)" in text
    assert "noise in the bonus: lowest for rnd" in text
    assert "states seen: highest for random" in text


def test_ctrl_c_ends_the_demo_and_all_its_processes_at_once(tmp_path):
    command = [sys.executable, "-m", "ssedb", "demo", "--steps", "1e6", "--out", str(tmp_path)]
    demo = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert "Three agents explore" in demo.stdout.readline()
    time.sleep(2)  # its processes are there, loading torch
    began = time.monotonic()
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does, to all of them
    said = demo.communicate(timeout=120)[0]
    assert demo.returncode == 130, said
    assert time.monotonic() - began < 60  # a run takes an hour
    assert said.endswith("ssedb: stopped\n")
    assert "Traceback" not in said
