"""The demo in small: what runs, what is said and drawn, and how it is stopped."""

import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ssedb import cli, demo
from ssedb.demo import CHANCE, DB, RND, RND_CLEAN, Result, print_results, run_agent
from ssedb.runs.signals import handled
from tests.helpers import is_alive, wait_for


def config_of(monkeypatch, *flags):
    """Return the settings and the number of seeds that the command line asks for."""
    asked = []
    monkeypatch.setattr(demo, "run_demo", lambda *given: asked.append(given))
    assert cli.main(["demo", *flags]) == 0
    return asked[0]


def test_demo_by_default_follows_our_recipe_on_the_tiny_world(monkeypatch):
    config, seeds = config_of(monkeypatch)
    assert (config.env, config.noise, config.fidelity) == ("rooms-tiny", "random-box", "ours")
    assert config.reward_scale == "recent"
    assert seeds >= 3


def test_demo_end_to_end_prints_its_table(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    assert cli.main(["demo", "--steps", "1024", "--seeds", "1", "--out", str(out)]) == 0
    said, plain = capsys.readouterr()
    assert "rooms of 16" in said
    assert str(out / "demo.png") in said.replace("\n", "")
    assert plain.endswith("4 of 4 runs done\n")
    runs = json.loads((out / "demo.json").read_text())["runs"]
    assert {run["agent"] for run in runs} == {DB, RND, RND_CLEAN, CHANCE}
    for run in runs:
        first, last = run["rows"]
        assert (first["steps"], first["rooms"], last["steps"]) == (0, 1, 1024)
        assert 1 <= last["rooms"] == 16 * last["rooms_share"] < 16
        assert ("noise_share" in last) == (run["agent"] in (DB, RND))
        assert sum(run["visits"]) == 1024 + 64 + 8
    assert (out / "demo.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("agent", "bonus", "noise"),
    [
        (DB, "db-ensemble", ("random-box", "wrap")),
        (RND, "rnd", ("random-box", "wrap")),
        (RND_CLEAN, "rnd", ("none", "")),
    ],
)
def test_run_of_an_agent_has_its_bonus_its_noise_and_a_curve(monkeypatch, agent, bonus, noise):
    class Watched(demo.Trainer):
        def __init__(self, config):
            trained.append(config)
            super().__init__(config)

    trained, messages = [], queue.Queue()
    monkeypatch.setattr(demo, "Trainer", Watched)
    monkeypatch.setattr(demo, "ROWS", 2)
    config, _ = config_of(monkeypatch, "--steps", "512")
    sizes = dict(num_envs=8, minibatch_envs=8, obs_norm_steps=64)
    small = dataclasses.replace(config, noise_variant="wrap", **sizes)
    result = run_agent(small, agent, 3, messages, threads=1)
    found = [(c.bonus, (c.noise, c.noise_variant), c.seed) for c in trained]
    assert found == [(bonus, noise, 3)]
    assert [row["steps"] for row in result.rows] == [0, 256, 512]
    rooms = [row["rooms"] for row in result.rows]
    assert rooms[0] == 1 < rooms[-1]
    assert rooms == sorted(rooms)
    told = [messages.get() for _ in range(messages.qsize())]
    assert told == [(agent, 3, 128 * i) for i in range(5)]


def test_run_of_chance_acts_evenly_in_staggered_episodes(monkeypatch):
    config, _ = config_of(monkeypatch, "--steps", "1024")
    result = run_agent(config, CHANCE, 0, queue.Queue(), threads=1)
    # 64 environments begin, and in 16 steps of 100 two of the 16 groups of 4 come to an end.
    assert sum(result.visits) == 1024 + 64 + 8
    assert 1 < result.rows[-1]["rooms"] < 8
    assert run_agent(config, CHANCE, 0, queue.Queue(), threads=1) == result
    assert run_agent(config, CHANCE, 1, queue.Queue(), threads=1).visits != result.visits


def test_table_says_what_each_agent_reached_even_if_it_is_not_what_we_hope(capsys):
    def run(agent, seed, rooms, **share):
        return Result(agent, seed, [{"steps": 9, "rooms": rooms, **share}])

    results = [
        run(DB, 0, 3, noise_share=0.9),
        run(DB, 1, 6, noise_share=0.7),
        run(RND, 0, 15, noise_share=0.2),
        run(RND_CLEAN, 0, 2),
        run(CHANCE, 0, 8),
    ]
    print_results(results, 16)
    said = capsys.readouterr().out
    assert "4.5 (3, 6)" in said
    assert "0.80 (0.70 to 0.90)" in said
    assert "RND reached 2.0 rooms without noise, 15.0 under it; chance 8.0." in said
    assert "20% of RND's bonus was noise, 80% of DB's." in said


def test_demo_under_a_noise_for_vectors_is_refused_before_its_plan(tmp_path, capsys):
    out = tmp_path / "demo"
    assert cli.main(["demo", "--noise", "gaussian-dims", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(
        "ssedb: noise=gaussian-dims: it disturbs vectors, and rooms-tiny observes images; use one "
    )
    assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_demo_when_stopped_ends_with_all_its_processes(tmp_path, number):
    command = [sys.executable, "-m", "ssedb", "demo", "--steps", "1e6", "--out", str(tmp_path)]
    with handled(signal.SIG_DFL, signal.SIGHUP):  # nohup may run the tests
        demo = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        assert "Four agents explore" in demo.stdout.readline()
        wait_for(lambda: len(session(demo.pid)) >= 3)  # its processes are there, loading torch
        time.sleep(1)
        if number == signal.SIGINT:
            os.killpg(demo.pid, number)  # as a terminal does, to all of them
        else:
            demo.send_signal(number)
        said = demo.communicate(timeout=60)[0]  # a run takes an hour
        wait_for(lambda: not session(demo.pid), seconds=20)
    finally:
        for pid in session(demo.pid):
            os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in said
    if number == signal.SIGKILL:
        assert demo.returncode == -number
    else:
        assert demo.returncode == 130, said
        assert said.endswith("ssedb: stopped\n")


def session(leader):
    """Return the processes of a session that are alive."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if is_alive(pid) and session_of(pid) == leader]


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


def test_demo_under_way_says_how_long_it_still_takes():
    done = {(demo.DB, 0): 100, (demo.RND, 0): 20, (demo.RND, 1): 0, (demo.CHANCE, 0): 0}
    said = demo._under_way(done, 100, 76.0)
    # DB's 700 and 60 of RND's 600 units of work took 76 s; what chance does weighs nothing.
    assert said == ["1 of 4 runs done", "about 0:00:54 left", f"{demo.RND} seed 0 20%"]
    assert demo._under_way(dict.fromkeys(done, 0), 100, 1.0) == ["0 of 4 runs done"]
    assert demo._under_way(dict.fromkeys(done, 100), 100, 9.0) == ["4 of 4 runs done"]
