"""Compare ways to step Atari games on all cores under random actions: why training keeps pools.

    python benchmarks/pools.py --env breakout --envs 128

The ways take turns. With fewer cores than the sixteen beside a GPU, fewer games (8 for each core)
make the same case.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from ssedb.bench import step_vectors
from ssedb.envs.atari import AtariEnv
from ssedb.envs.names import POOLS, atari_games


def one_after_the_other(vectors: list[AtariVectorEnv], steps: int) -> None:
    """Wait for the pools in a fixed order; reply to each before the next is waited for."""
    rng, choices = np.random.default_rng(0), len(vectors[0].ale.get_action_set())
    for step in range(steps + 1):
        for vector in vectors:
            if step > 0:
                vector.recv()
            if step < steps:
                vector.send(rng.integers(0, choices, vector.num_envs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--envs", type=int, default=8 * (os.cpu_count() or 1))
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    game = options.env
    if game not in atari_games():
        parser.error(f"--env {game}: use an Atari game, such as breakout")
    if options.envs < POOLS or options.envs % POOLS:
        parser.error(f"--envs {options.envs}: must be a multiple of {POOLS}")
    whole, pools = (
        AtariEnv(game, options.envs),
        [AtariEnv(game, options.envs // POOLS, seed=i) for i in range(1, POOLS + 1)],
    )
    for env in (whole, *pools):
        env.reset()
    vectors = [pool.ale for pool in pools]
    ways: dict[str, Callable[[int], None]] = {
        "one vector": partial(step_vectors, [[whole.ale]]),
        f"{POOLS} pools, one after the other": partial(one_after_the_other, vectors),
        f"{POOLS} pools, as they come": partial(step_vectors, [[vector] for vector in vectors]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.repeats + 1):
        for name, step in ways.items():
            began = time.perf_counter()
            step(options.steps)
            if repeat:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
    print("| | agent steps/s | / one vector |\n|---|---|---|")
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(seconds["one vector"], times, strict=True))
        rate = options.envs * options.steps / statistics.median(times)
        print(f"| {name} | {rate:,.0f} | {ratio:.2f} |")
    for env in (whole, *pools):
        env.close()


if __name__ == "__main__":
    main()
