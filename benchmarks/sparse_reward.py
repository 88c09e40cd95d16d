"""A sparse reward: PPO of Stable-Baselines3 alone, and with an intrinsic reward of ours.

    pip install 'ssedb[sb3]'
    python benchmarks/sparse_reward.py --bonuses none rnd db-ensemble --seeds 5 --out sparse.jsonl

MountainCarContinuous of Gymnasium, observations rescaled to -1..1: the reward is 100 at the summit
and -0.1 a^2 for an action a before, so who does not find the summit learns to stand still; after
999 steps an episode is cut. The same PPO for all, 8 environments, 64 steps to a rollout; the share
of the last 100 episodes that reached the summit, along training. Every finished run is appended to
`--out`, and a run that is there already is not made again. Results and machine:
`benchmarks/log/2026-11-16-sparse-reward.md`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import RescaleObservation
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from ssedb.compare.statistics import bootstrap, mean
from ssedb.integrations.sb3 import IntrinsicRewardCallback

ENVS, STEPS = 8, 64


class Successes(BaseCallback):
    """The share of the last 100 episodes that reached the summit, after every rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.shares.append(float(np.mean(np.array(returns) > 0)) if returns else 0.0)


def make_car() -> gymnasium.Env[Any, Any]:
    """Make the environment."""
    one = np.float32(1)
    return RescaleObservation(gymnasium.make("MountainCarContinuous-v0"), -one, one)


def train(job: tuple[str, int, int]) -> dict[str, Any]:
    """Train once; return the curve."""
    bonus, seed, steps = job
    torch.set_num_threads(1)
    env = make_vec_env(make_car, ENVS, seed=seed)
    sizes = dict(n_steps=STEPS, batch_size=128, n_epochs=8, ent_coef=0.01, learning_rate=1e-3)
    model = PPO("MlpPolicy", env, **sizes, seed=seed, device="cpu")
    curve = Successes()
    callbacks: list[BaseCallback] = [curve]
    if bonus != "none":
        callbacks.append(IntrinsicRewardCallback(bonus, preset="rooms", seed=seed))
    model.learn(steps, callback=callbacks)
    return {"bonus": bonus, "seed": seed, "steps": steps, "success": curve.shares}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bonuses", nargs="+", default=["none", "rnd", "db-ensemble"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40_960)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("sparse_reward.jsonl"))
    args = parser.parse_args()
    runs = (
        [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.out.exists()
        else []
    )
    made = {(run["bonus"], run["seed"], run["steps"]) for run in runs}
    jobs = [(b, s, args.steps) for s in range(args.seeds) for b in args.bonuses]
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for run in pool.imap_unordered(train, [job for job in jobs if job not in made]):
            runs.append(run)
            with args.out.open("a") as file:
                file.write(json.dumps(run) + "\n")
    print(
        "| bonus | runs | reached the summit at the end, mean and 95% interval | runs above 0.9 |"
    )
    print("|---|---|---|---|")
    for bonus in args.bonuses:
        ends = [r["success"][-1] for r in runs if r["bonus"] == bonus and r["steps"] == args.steps]
        found = bootstrap({"car": ends}, mean, bounds=(0.0, 1.0))
        solved = sum(end > 0.9 for end in ends)
        interval = f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
        print(f"| {bonus} | {len(ends)} | {interval} | {solved} |")


if __name__ == "__main__":
    main()
