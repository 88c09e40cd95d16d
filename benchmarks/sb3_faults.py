"""Stable-Baselines3 under the faults of docs/reliability.md: resume, kill -9, flipped bits, a soak.

    python benchmarks/sb3_faults.py --kills 50 --flips 200 --minutes 5

PPO of Stable-Baselines3, saved by its CheckpointCallback after every rollout, on the smallest Rooms
with 4 environments x 8 steps, as in tests/faults/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import ssedb

ENVS, STEPS = 4, 8
ROLLOUT = ENVS * STEPS


class Room(gymnasium.Env[np.ndarray, int]):
    """One Rooms environment, as Gymnasium has it."""

    def __init__(self, seed: int) -> None:
        self.env = ssedb.make_env("rooms-tiny", 1, seed=seed)
        shape = (1, *self.env.reset().shape[1:])
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(int(self.env.num_actions))

    def reset(self, **settings: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        return self.env.reset().numpy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        step = self.env.step(torch.tensor([int(action)]))
        return step.frames.numpy(), float(step.rewards[0]), bool(step.dones[0]), False, {}


def rooms() -> DummyVecEnv:
    """Make the environments."""
    return DummyVecEnv([lambda seed=seed: Room(seed) for seed in range(ENVS)])


def fresh() -> PPO:
    """Make a model with seed 0."""
    sizes = dict(n_steps=STEPS, batch_size=ROLLOUT // 2, n_epochs=3)
    return PPO("CnnPolicy", rooms(), seed=0, device="cpu", **sizes)


def saving(folder: Path) -> CheckpointCallback:
    """Save after every rollout."""
    return CheckpointCallback(save_freq=STEPS, save_path=str(folder))


def newest(folder: Path) -> Path | None:
    """Return the checkpoint of the most steps, as a user would pick it."""
    found = sorted(folder.glob("*.zip"), key=lambda path: int(path.stem.split("_")[-2]))
    return found[-1] if found else None


def differ(one: PPO, other: PPO) -> bool:
    """Tell whether a weight differs."""
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    return not all(torch.equal(a, b) for a, b in pairs)


def resume(folder: Path) -> dict[str, Any]:
    """Compare a run that is saved and loaded half-way to one that is left alone."""
    whole, again = (fresh().learn(20 * ROLLOUT) for _ in range(2))
    fresh().learn(10 * ROLLOUT).save(folder / "half")
    half = PPO.load(folder / "half", env=rooms(), device="cpu")
    half.learn(10 * ROLLOUT, reset_num_timesteps=False)
    return {"same_seed_differs": differ(whole, again), "resume_differs": differ(whole, half)}


def kills(folder: Path, number: int) -> dict[str, Any]:
    """Kill runs at random moments and load the newest file that each has left."""
    draw, unloadable = random.Random(0), 0
    for kill in range(number):
        out = folder / str(kill)
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            fresh().learn(10**9, callback=saving(out))
        while newest(out) is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            PPO.load(newest(out), device="cpu")
        except Exception:
            unloadable += 1
        shutil.rmtree(out)
    return {"kills": number, "newest_unloadable": unloadable}


def flips(folder: Path, number: int) -> dict[str, Any]:
    """Flip single bits of a saved model and count those that load all the same."""
    fresh().learn(ROLLOUT).save(folder / "flip")
    path, draw, silent = folder / "flip.zip", random.Random(0), 0
    good = path.read_bytes()
    for bit in draw.sample(range(8 * len(good)), number):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            PPO.load(path, device="cpu")
        except Exception:
            continue
        silent += 1
    return {"flips": number, "loaded_all_the_same": silent}


class Watcher(BaseCallback):
    """Notes memory (MiB), file handles and threads after each rollout; stops the run in time."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self.limit = time.monotonic() + 60 * minutes
        self.rows: list[tuple[float, int, int]] = []

    def _on_rollout_end(self) -> None:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":\t") for line in lines)
        memory = int(status["VmRSS"].split()[0]) / 1024
        self.rows.append((memory, len(os.listdir("/proc/self/fd")), int(status["Threads"])))

    def _on_step(self) -> bool:
        return time.monotonic() < self.limit


def soak(folder: Path, minutes: float) -> dict[str, Any]:
    """Train for some minutes; return medians of the first, second and last third."""
    watcher = Watcher(minutes)
    fresh().learn(10**9, callback=[watcher, CheckpointCallback(100 * STEPS, str(folder / "soak"))])
    third = len(watcher.rows) // 3
    thirds = [watcher.rows[i * third : (i + 1) * third] for i in range(3)]
    medians = [[statistics.median(column) for column in zip(*rows, strict=True)] for rows in thirds]
    names = ("memory_mib", "handles", "threads")
    columns = {name: [row[i] for row in medians] for i, name in enumerate(names)}
    return {"minutes": minutes, "updates": len(watcher.rows), **columns}


def main() -> None:
    """Run what the flags ask for, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(json.dumps(resume(folder)), flush=True)
        print(json.dumps(flips(folder, options.flips)), flush=True)
        print(json.dumps(kills(folder, options.kills)), flush=True)
        print(json.dumps(soak(folder, options.minutes)), flush=True)


if __name__ == "__main__":
    main()
