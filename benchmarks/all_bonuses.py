"""Time training against the emulators alone: DB, its rivals, noise on raw frames, Rooms, updates.

    python benchmarks/all_bonuses.py --device cuda --updates 4     # about six minutes on an H200

Each row times whole updates in turn with the same environments alone, and with as many games in
one vector of the emulator library.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import time
from collections.abc import Sequence

import torch
from ale_py.vector_env import AtariVectorEnv

import ssedb
from ssedb.bench import SideBySide, gpu_memory, library_vector, side_by_side, title, update_rate
from ssedb.collect.environments import training_envs
from ssedb.config import TrainConfig
from ssedb.engine import host
from ssedb.envs.base import Env
from ssedb.envs.names import atari_games
from ssedb.envs.noisy import NoisyEnv
from ssedb.noises import noise_of
from ssedb.trainer import Trainer

RIVALS = ("icm", "disagreement", "cb", "re3", "rnd")
HEADINGS = (
    "what",
    "one vector of the library",
    "the pools alone",
    "trained",
    "/ library",
    "/ pools",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="breakout", help="an Atari game")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--rollout-steps", type=int)
    parser.add_argument("--minibatch-envs", type=int)
    parser.add_argument("--rooms-envs", type=int, default=4096, help="environments of Rooms")
    parser.add_argument("--rivals", nargs="+", default=RIVALS, help="bonuses beside DB")
    parser.add_argument("--updates", type=int, default=2)
    options = parser.parse_args()
    names = ("num_envs", "rollout_steps", "minibatch_envs")
    sizes = {name: value for name in names if (value := getattr(options, name)) is not None}
    try:
        config = TrainConfig(env=options.env, device=options.device, preset=options.preset, **sizes)
    except ssedb.ConfigError as error:
        parser.error(str(error))
    if config.env not in atari_games():
        parser.error(f"--env {options.env}: name an Atari game")
    rows = measure(config, options.updates, options.rooms_envs, options.rivals)
    for row in (HEADINGS, ["---"] * len(HEADINGS), *rows):
        print("| " + " | ".join(row) + " |")


def measure(
    config: TrainConfig, updates: int, rooms_envs: int, rivals: Sequence[str]
) -> list[list[str]]:
    """Time everything, say how it goes, and return the rows of the table."""
    rows: list[list[str]] = []

    def compare(
        name: str, config: TrainConfig, envs: Sequence[Env] | None, library: AtariVectorEnv | None
    ) -> None:
        began = time.perf_counter()
        trainer = Trainer(config, envs)
        got = side_by_side(trainer, updates, library)
        rows.append([name, *got.columns()])
        say(f"{line(name, got)} ({time.perf_counter() - began:.0f} s)")
        if envs is None:
            trainer.close()

    device = host.pick_device(config.device)
    envs, library = training_envs(config, 0, device), library_vector(config)
    three = dataclasses.replace(config, bonus_epochs=3)
    alone = time_updates(three, envs)
    compare(f"{config.env}, db, 3 epochs of each", three, envs, library)
    if device.type == "cuda":
        say(f"GPU memory: {gpu_memory()} (allocated, and held by torch, at its highest)")
    for bonus in rivals:
        other = dataclasses.replace(config, bonus=bonus, bonus_options={})
        compare(f"{config.env}, {bonus}", other, envs, library)
    close(envs)
    library.close()
    raw = dataclasses.replace(three, noise="random-box", fidelity="released")
    envs, library = training_envs(raw, 0, device), library_vector(raw)
    for noise in ("random-box", "pixel"):
        noisy = dataclasses.replace(raw, noise=noise, bonus_options={}, bonus_epochs=3)
        pools = [NoisyEnv(pool.env, noise_of(noisy)) for pool in envs]
        compare(f"{config.env}, db, {noise} on raw frames", noisy, pools, library)
    close(envs)
    library.close()
    rooms = dataclasses.replace(config, env="rooms", num_envs=rooms_envs, bonus_options={})
    compare(f"rooms, db, {rooms_envs} environments", rooms, None, None)
    return [*rows, ["updates alone, PPO x3 and DB x3", "-", "-", f"{alone:,.0f}", "-", "-"]]


def close(envs: Sequence[Env]) -> None:
    for env in envs:
        env.close()


def time_updates(config: TrainConfig, envs: Sequence[Env]) -> float:
    """Return agent steps per second of the updates alone."""
    began = time.perf_counter()
    trainer = Trainer(config, envs)
    say(title(config, trainer))
    rate = update_rate(trainer)
    seconds = time.perf_counter() - began
    say(
        f"updates alone, PPO x3 and DB x3: {rate:,.0f} (compiled, captured, timed: {seconds:.0f} s)"
    )
    del trainer
    gc.collect()  # CUDA graphs hold on to it
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return rate


def line(name: str, got: SideBySide) -> str:
    names = ("library", "alone", "trained", "/ library", "/ alone")
    pairs = zip(names, got.columns(), strict=True)
    return f"{name}: " + ", ".join(f"{what} {column}" for what, column in pairs)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
