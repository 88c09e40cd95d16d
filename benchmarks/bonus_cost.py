"""Measure what each bonus costs: time and memory of one rollout of 128 environments x 128 steps.

    python benchmarks/bonus_cost.py --device cpu --minibatches 1
    python benchmarks/bonus_cost.py --device cuda

Paper-size networks, one pass of the bonus model. Every bonus runs in a process of its own, so that
memory is its own; the row `none` is what the process and the rollout take without any. With
`--minibatches` fewer than the 8 of a rollout are timed and the time is scaled up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import ssedb
from ssedb.bonuses.base import observes
from ssedb.envs.base import Env, Step
from ssedb.trainer import Trainer


class Still(Env):
    """Random pictures that cost nothing to step."""

    num_actions = 18

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.frames = torch.randint(256, (num_envs, 84, 84), dtype=torch.uint8, device=device)
        self.step_made = Step(
            self.frames,
            torch.zeros(num_envs, device=device),
            torch.zeros_like(self.frames[:, 0, 0]).bool(),
        )

    def reset(self) -> Tensor:
        return self.frames

    def step(self, actions: Tensor) -> Step:
        return self.step_made


def measure(
    bonus: str, device: str, minibatches: int, sizes: dict[str, Any]
) -> tuple[float, float, float, float]:
    """Return the seconds to reward, observe and update, and GiB at the highest."""
    config = ssedb.TrainConfig(env="alien", bonus=bonus, device=device, **sizes)
    trainer = Trainer(config, Still(config.num_envs, device))
    rollout = trainer.rollout
    rollout.frames.random_(256)
    rollout.actions.random_(18)
    groups = list(rollout.groups(config.minibatch_envs))[:minibatches]
    share = len(groups) / (config.num_envs // config.minibatch_envs)

    def timed(part: Callable[[Tensor, Tensor], object]) -> float:
        for _ in range(4 if device == "cuda" else 1):
            part(*groups[0])
        wait(device)
        began = time.perf_counter()
        for group in groups:
            part(*group)
        wait(device)
        return (time.perf_counter() - began) / share

    reward = timed(lambda t, n: trainer.reward_step(t, n, rollout=rollout))
    observe = 0.0
    if observes(trainer.bonus):
        observe = timed(lambda t, n: trainer.bonus.observe(*trainer._experience(t, n, rollout)))
    trainer.bonus.after_rollout()
    wait(device)
    began = time.perf_counter()
    trainer.bonus.after_rollout()
    wait(device)
    observe += time.perf_counter() - began
    update = timed(lambda t, n: trainer.bonus_step(t, n, rollout=rollout))
    peak = (
        torch.cuda.max_memory_allocated() / 2**30
        if device == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    )
    return reward, observe, update, peak


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--minibatches",
        type=int,
        default=8,
        help="how many of the rollout's 8 minibatches are timed",
    )
    parser.add_argument("--bonuses", nargs="+", default=ssedb.list_bonuses())
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--rollout-steps", type=int)
    args = parser.parse_args()
    sizes = {name: getattr(args, name) for name in ("preset", "num_envs", "rollout_steps")}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    steps = ssedb.TrainConfig(env="alien", **sizes).rollout_size
    print(
        f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads, "
        f"{args.minibatches} of 8 minibatches\n"
    )
    print("| bonus | reward, ms | observe, ms | update, ms | all, ms | steps/s | GiB |")
    print("|---|---|---|---|---|---|---|")
    for bonus in args.bonuses:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            reward, observe, update, peak = pool.apply(
                measure, (bonus, args.device, args.minibatches, sizes)
            )
        total = reward + observe + update
        cells = [f"{1000 * x:,.1f}" for x in (reward, observe, update, total)]
        print(
            f"| `{bonus}` | {' | '.join(cells)} | {steps / total:,.0f} | {peak:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
