"""A script in RLeXplore's way: its class, its keywords, its samples. Only the import is ours.

pip install 'ssedb[sb3]'
python examples/rlexplore_ppo.py
"""

from __future__ import annotations

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from ssedb.integrations.rlexplore import RND  # was: from rllte.xplore.reward import RND


class AddReward(BaseCallback):
    """Rewards of a reward module, added where they reach the returns."""

    def __init__(self, irs: RND) -> None:
        super().__init__()
        self.irs = irs

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer, ended = self.model.rollout_buffer, torch.as_tensor(self.locals["dones"])
        obs, starts = torch.as_tensor(buffer.observations), torch.as_tensor(buffer.episode_starts)
        samples = dict(
            observations=obs,
            actions=torch.as_tensor(buffer.actions),
            rewards=torch.as_tensor(buffer.rewards),
            terminateds=torch.cat([starts[1:], ended[None]]),
            truncateds=torch.zeros_like(starts),
            next_observations=torch.cat([obs[1:], torch.as_tensor(self.locals["new_obs"])[None]]),
        )
        buffer.rewards += self.irs.compute(samples=samples, sync=True).cpu().numpy()
        buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    envs = make_vec_env(args.env, 8, seed=0)
    irs = RND(envs, device="cpu", beta=1.0, kappa=0.0, lr=0.001, batch_size=256)
    PPO("MlpPolicy", envs, n_steps=256, batch_size=256, seed=0, device="cpu", verbose=1).learn(
        args.steps, callback=AddReward(irs)
    )


if __name__ == "__main__":
    main()
