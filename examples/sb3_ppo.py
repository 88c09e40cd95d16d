"""PPO of Stable-Baselines3 with an intrinsic reward. MountainCar's own is -1 until the summit.

pip install 'ssedb[sb3]'
python examples/sb3_ppo.py
"""

from __future__ import annotations

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from ssedb.integrations.sb3 import IntrinsicRewardCallback


def main() -> None:
    """Train, save, load and go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--bonus", default="db")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", default="sb3_ppo.zip")
    args = parser.parse_args()

    env = make_vec_env(args.env, 8, seed=0)
    model = PPO("MlpPolicy", env, n_steps=256, batch_size=256, seed=0, device="cpu", verbose=1)
    model.learn(args.steps, callback=IntrinsicRewardCallback(args.bonus))

    model.save(args.out)  # with the bonus, its optimizer and its statistics
    model = PPO.load(args.out, env=env, device="cpu")
    model.learn(args.steps, callback=IntrinsicRewardCallback(args.bonus, extrinsic_coef=0))
    print(f"the bonus has learned from {model.intrinsic_reward.updates} rollouts")


if __name__ == "__main__":
    main()
