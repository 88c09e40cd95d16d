"""Ways to step the same number of Atari games on all cores, random actions, nothing else: why training keeps them in pools.

    python benchmarks/pools.py --env breakout --envs 128

The ways take turns. With fewer cores than the sixteen beside a GPU, fewer games (8 for each core) make the same case.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from ale_py.vector_env import AtariVectorEnv

import ssedb
from ssedb.envs.atari import AtariEnv
from ssedb.envs.names import POOLS


def one_after_the_other(vectors: list[AtariVectorEnv], actions: np.ndarray) -> None:
    """Answers are waited for in a fixed order: with one vector, all games wait for the slowest."""
    for vector, first in zip(vectors, actions[0], strict=True):
        vector.send(first)
    for now in actions[1:]:
        for vector, some in zip(vectors, now, strict=True):
            vector.recv()
            vector.send(some)
    for vector in vectors:
        vector.recv()


def as_they_come(vectors: list[AtariVectorEnv], actions: np.ndarray) -> None:
    """Each goes on as soon as it has answered."""

    def step(vector: AtariVectorEnv, own: np.ndarray) -> None:
        for some in own:
            vector.send(some)
            vector.recv()

    with ThreadPoolExecutor(len(vectors)) as threads:
        list(threads.map(step, vectors, actions.swapaxes(0, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--envs", type=int, default=8 * (os.cpu_count() or 1))
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.envs % POOLS:
        parser.error(f"--envs {options.envs}: must be a multiple of {POOLS}")
    try:
        whole, *pools = (
            AtariEnv(options.env, options.envs // parts, seed=number) for number, parts in enumerate([1] + [POOLS] * POOLS)
        )
    except ssedb.ConfigError as error:
        parser.error(str(error))
    for env in (whole, *pools):
        env.reset()
    ways: dict[str, tuple[Callable[..., None], list[AtariVectorEnv]]] = {
        "one vector": (one_after_the_other, [whole.ale]),
        f"{POOLS} pools, one after the other": (one_after_the_other, [pool.ale for pool in pools]),
        f"{POOLS} pools, as they come": (as_they_come, [pool.ale for pool in pools]),
    }
    rng, seconds = np.random.default_rng(0), {name: [] for name in ways}
    for repeat in range(options.repeats + 1):
        for name, (step, vectors) in ways.items():
            actions = rng.integers(0, whole.num_actions, (options.steps, len(vectors), options.envs // len(vectors)))
            began = time.perf_counter()
            step(vectors, actions)
            if repeat:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
    print("| | agent steps/s | / one vector |\n|---|---|---|")
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(seconds["one vector"], times, strict=True))
        print(f"| {name} | {options.envs * options.steps / statistics.median(times):,.0f} | {ratio:.2f} |")
    for env in (whole, *pools):
        env.close()


if __name__ == "__main__":
    main()
