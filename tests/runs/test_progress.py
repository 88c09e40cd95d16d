"""What a run shows: steps of the whole rollouts that it makes, and now and then a plain line."""

import io
import signal
import sys

from ssedb.collect import environments
from ssedb.runs import progress
from ssedb.runs.loop import stop_on_signals
from ssedb.terminal import bar
from tests.toy import Sides, tiny_config


def test_progress_counts_to_the_end_of_the_last_rollout(tmp_path, capsys):
    config = tiny_config(tmp_path)
    size = config.rollout_size
    config = tiny_config(tmp_path, steps=size + 1)  # two rollouts
    with progress.console() as shown:
        shown.start(0, config)
        for steps in (size, 2 * size):
            shown.log({"steps": steps, "score": None, "bonus_raw": 0.5})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        f"{size:,}/{2 * size:,} steps",
        f"{2 * size:,}/{2 * size:,} steps",
    ]
    assert lines[-1].split("  ")[1] == "left 0:00:00"


def test_progress_prints_no_plain_line_within_ten_seconds_of_another(tmp_path, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    config = tiny_config(tmp_path, steps=1_000_000)
    with progress.console() as shown:
        shown.start(0, config)
        for update in range(1, 8):  # one every 4 seconds
            now[0] = 4.0 * update
            shown.step(update * config.rollout_size)
            shown.train_step()
            row = {"steps": update * config.rollout_size, "score": 1.0, "bonus_raw": 0.5}
            shown.log(row)
    lines = capsys.readouterr().err.splitlines()
    steps = [int(line.split("/")[0].replace(",", "")) for line in lines]
    assert steps == [update * config.rollout_size for update in (1, 4, 7)]


def test_display_standing_alarm_is_in_every_line(capsys):
    shown = progress.console()
    shown.start(0, tiny_config("run", steps=256))
    row = {"steps": 256, "score": None, "bonus_raw": 1.0, "entropy": 0.012}
    shown.log({**row, "alarms": ["entropy"]})
    shown.log(row)
    first, second = capsys.readouterr().err.splitlines()
    assert "ALARM entropy 0.01  score -" in first
    assert "ALARM" not in second


def test_look_around_shows_how_far_it_is_every_ten_seconds(tmp_path, capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    shown = progress.console()

    class Slow(Sides):
        def step(self, actions):
            now[0] += 4.0
            return super().step(actions)

    monkeypatch.setattr(environments, "env_of", lambda config, num_envs, **_: Slow(num_envs))
    environments.look_around(tiny_config(tmp_path, obs_norm_steps=50), on_step=shown.look)
    assert capsys.readouterr().err.splitlines() == [
        "a random agent looks around for 50 steps",
        "24/50 random steps",
        "48/50 random steps",
    ]


class _Interrupted(io.FileIO):
    """Standard error on which every write is interrupted by a signal."""

    def write(self, data):
        signal.raise_signal(signal.SIGTERM)
        return super().write(data)

    def isatty(self):
        return False


def test_signal_within_a_write_is_answered_and_leaves_the_line_whole(capfd, monkeypatch):
    raw = _Interrupted(2, "wb", closefd=False)
    stream = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.console() as shown, stop_on_signals(shown) as stopping:
        shown.note("a line of the log")
        assert stopping()
    assert capfd.readouterr().err.splitlines() == [
        "stopping after this update, with a checkpoint; once more stops at once",
        "a line of the log",
    ]
