"""DQN of Stable-Baselines3 in environments whose reward includes the bonus.

pip install 'ssedb[sb3]'
python examples/sb3_dqn.py
"""

from __future__ import annotations

import argparse

from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from ssedb.integrations.sb3 import VecIntrinsicReward


def main() -> None:
    """Train, and save the agent and the bonus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--bonus", default="rnd")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", default="sb3_dqn")
    args = parser.parse_args()

    env = VecIntrinsicReward(make_vec_env(args.env, 8, seed=0), args.bonus, device="cpu")
    model = DQN("MlpPolicy", env, seed=0, device="cpu", verbose=1)
    model.learn(args.steps)

    model.save(args.out)
    env.save(f"{args.out}_bonus.pt")
    env = VecIntrinsicReward.load(f"{args.out}_bonus.pt", make_vec_env(args.env, 8))
    print(f"the bonus has learned from {env.reward.updates} rollouts")


if __name__ == "__main__":
    main()
