"""Gymnasium: the intrinsic reward of every step of a random agent.

python examples/gymnasium_loop.py
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

from ssedb.integrations.gymnasium import VectorIntrinsicReward


def main() -> None:
    """Step at random, and print how the bonus fades."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--bonus", default="rnd")
    parser.add_argument("--steps", type=int, default=20_000)
    args = parser.parse_args()

    env = gymnasium.make_vec(args.env, num_envs=8, vectorization_mode="sync")
    env = VectorIntrinsicReward(env, args.bonus, add_to="info", device="cpu")
    env.reset(seed=0)
    env.action_space.seed(0)
    rewards = []
    for step in range(1, args.steps // 8 + 1):
        _, _, _, _, info = env.step(env.action_space.sample())
        rewards.append(info["intrinsic_reward"])
        if step % 256 == 0:
            mean, raw = np.mean(rewards[-128:]), env.reward.metrics["bonus_raw"]
            print(f"step {8 * step}: {mean:.3f} scaled, {raw:.5f} before it is scaled")
    env.close()


if __name__ == "__main__":
    main()
