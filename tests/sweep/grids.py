"""A grid of 8 runs that take a second each."""

import json
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path

from ssedb.runs.metrics import read_metrics
from ssedb.sweep.display import Display
from ssedb.sweep.worker import MemoryUse
from tests.helpers import without_clocks

TOY = """
name = "toy"

[settings]
env = "rooms-small"
preset = "rooms"
steps = 96
num_envs = 4
rollout_steps = 8
minibatch_envs = 2
bonus_epochs = 1
obs_norm_steps = 32
checkpoint_minutes = 0

[axes]
noise = ["none", "random-box"]
bonus = ["db", "rnd"]
seed = [0, 1]
"""
TWO = TOY.replace("seed = [0, 1]", "seed = [0]").replace('"none", ', "")
"""Two of the runs, for tests that train them."""


def write_grid(folder: Path, text: str = TOY) -> Path:
    path = folder / "toy.toml"
    path.write_text(text)
    return path


class Silent(Display):
    """Notes what it is told and shows nothing."""

    def __init__(self, runs, finished_before=0):
        super().__init__(runs, finished_before)
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def update(self, last=False):
        pass


class Killing(Silent):
    """Kills the process of a run the first time it tells of a step."""

    def __init__(self, runs, victims):
        super().__init__(runs)
        self.victims = list(victims)

    def stepped(self, run_id, steps):
        super().stepped(run_id, steps)
        for victim in [v for v in self.victims if v.id == run_id and steps > 0]:
            self.victims.remove(victim)
            os.kill(int((victim.folder / ".lock").read_text()), signal.SIGKILL)


def numbers(run: Path) -> list[dict]:
    """What a run computed, without clocks; checks that it came to its end exactly once."""
    rows = read_metrics(run)
    assert [row["steps"] for row in rows] == [32, 64, 96], run
    summary = json.loads((run / "summary.json").read_text())
    assert summary["finished"]
    assert summary["steps"] == 96
    return without_clocks(rows)


def all_numbers(root: Path) -> dict[str, list[dict]]:
    return {run.parent.name: numbers(run.parent) for run in sorted(root.glob("*/config.toml"))}


def received(pipe):
    """Yield what a worker is sent until the sweep closes the pipe."""
    with suppress(EOFError, OSError):
        while True:
            yield pipe.recv()


def failing_worker(pipe, number, device, threads, alone):
    """Run a worker whose runs fail: by an error that may pass, by one that stays, or by dying."""
    for run, _ in received(pipe):
        run.folder.mkdir(parents=True, exist_ok=True)
        with open(run.folder / "tries", "a") as file:
            file.write("x")
        pipe.send(("alarm", "ALARM at step 64: entropy"))
        if run.config.seed == 2:
            os._exit(3)
        pipe.send(("failed", "it broke", run.config.seed == 0))


def hungry_worker(pipe, number, device, threads, alone):
    """Run a worker of which the first tells its memory and then runs out of it."""
    for _ in received(pipe):
        pipe.send(("memory", MemoryUse(host=2**30, host_free=2**40)))
        if number == 0:
            pipe.send(("failed", "CUDA out of memory", True))
            pipe.poll(30)  # a process takes a while to end, and does no run that comes meanwhile
            return
        pipe.send(("finished",))


def swift_worker(pipe, number, device, threads, alone):
    """A worker whose runs finish at once: the first goes on from its last step, others begin."""
    first = 95
    for _ in received(pipe):
        for message in (("steps", first), ("steps", 96), ("finished",)):
            pipe.send(message)
        first = 0


def stopped_worker(pipe, number, device, threads, alone):
    """A worker of which the first is stopped by a signal that the sweep did not send."""
    for _ in received(pipe):
        if number == 0:
            pipe.send(("stopped",))
            pipe.poll(30)  # a process takes a while to end, and does no run that comes meanwhile
            return
        pipe.send(("finished",))


def cut_off_worker(pipe, number, device, threads, alone):
    """A worker of which the first dies in the middle of its first message."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        return
    if number == 0:
        os.write(pipe.fileno(), struct.pack("!i", 100) + b"ten bytes.")
        os._exit(3)
    pipe.send(("finished",))


def patient_worker(pipe, number, device, threads, alone):
    """A worker whose runs end when they are asked to."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    for _ in received(pipe):
        pipe.send(("steps", 0))
        while not asked and not pipe.poll(0.01):  # or the sweep is gone
            pass
        if asked:
            pipe.send(("stopped",))


def deaf_worker(pipe, number, device, threads, alone):
    """A worker whose run goes on whatever it is asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.recv()
    pipe.send(("steps", 0))
    pipe.poll(60)
