"""Which kernels the time of an iteration goes to.

    python benchmarks/kernels.py bonus=db-ensemble fidelity=ours env=rooms preset=small \\
        num_envs=128 rollout_steps=32 minibatch_envs=16
    python benchmarks/kernels.py env=breakout bonus=rnd --rows 40

Settings are those of `ssedb.TrainConfig`. After some iterations, in which steps are compiled and
captured, a few more are profiled. On a GPU the table has its kernels, on a CPU torch's operations.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import ssedb
from ssedb.collect.environments import look_around
from ssedb.trainer import Trainer


def setting(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, where the value is TOML or a word."""
    name, _, value = text.partition("=")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def measure(config: ssedb.TrainConfig, warm_up: int, iterations: int) -> tuple[Any, float]:
    """Return the profile of some iterations, and the seconds they take without it."""
    seen = look_around(config)
    trainer = Trainer(config)
    trainer.fit_observations(seen)

    def run(count: int) -> None:
        for _ in range(count):
            trainer.iterate()
        trainer.finish()
        trainer.engine.synchronize()

    run(warm_up)
    began = time.perf_counter()
    run(iterations)
    seconds = time.perf_counter() - began
    on_gpu = trainer.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        run(iterations)
    trainer.close()
    return profiled, seconds


def main() -> None:
    """Profile and print a table, the costliest first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", type=setting, metavar="NAME=VALUE")
    parser.add_argument("--warm-up", type=int, default=6, help="iterations before")
    parser.add_argument("--iterations", type=int, default=4, help="iterations that are profiled")
    parser.add_argument("--rows", type=int, default=25)
    args = parser.parse_args()
    config = ssedb.TrainConfig(**dict(args.settings))
    profiled, seconds = measure(config, args.warm_up, args.iterations)
    own = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    events = [e for e in profiled.key_averages() if getattr(e, own) > 0]
    events.sort(key=lambda e: -getattr(e, own))
    busy = sum(getattr(e, own) for e in events) / 1e6
    each = 1e3 / args.iterations
    print(f"{config.rollout_size * args.iterations / seconds:,.0f} steps/s; an iteration takes")
    print(f"{seconds * each:.1f} ms, of which kernels {busy * each:.1f} ms", end=", ")
    print(f"in {sum(e.count for e in events) / args.iterations:,.0f} calls\n")
    print("| kernel | ms an iteration | share | calls | us each |\n|---|---|---|---|---|")
    for e in events[: args.rows]:
        spent = getattr(e, own)
        cells = f"{spent / 1e3 / args.iterations:.2f} | {spent / busy / 1e6:.1%}"
        calls = f"{e.count / args.iterations:,.0f} | {spent / e.count:.1f}"
        print(f"| {e.key[:90].replace('|', '/')} | {cells} | {calls} |")


if __name__ == "__main__":
    main()
