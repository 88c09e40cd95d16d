"""PPO of TorchRL with an intrinsic reward: a transform, and a loss beside PPO's.

pip install 'ssedb[torchrl]'
python examples/torchrl_ppo.py
"""

from __future__ import annotations

import argparse

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, TransformedEnv
from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import ssedb
from ssedb.integrations.torchrl import IntrinsicRewardLoss, IntrinsicRewardTransform


def main() -> None:
    """Train the policy and the bonus side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MountainCar-v0")
    parser.add_argument("--steps", type=int, default=50_000)
    args = parser.parse_args()
    torch.manual_seed(0)
    game = gymnasium.make(args.env)
    reward = ssedb.IntrinsicReward("db", game, device="cpu")
    env = TransformedEnv(GymWrapper(game), IntrinsicRewardTransform(reward, add_to_reward=True))
    inputs, outputs = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    logits = TensorDictModule(MLP(inputs, outputs, num_cells=[64, 64]), ["observation"], ["logits"])
    draw = dict(distribution_class=OneHotCategorical, return_log_prob=True)
    actor = ProbabilisticActor(logits, in_keys=["logits"], **draw)
    critic = ValueOperator(MLP(inputs, 1, num_cells=[64, 64]))
    gae, ppo = GAE(gamma=0.99, lmbda=0.95, value_network=critic), ClipPPOLoss(actor, critic)
    bonus = IntrinsicRewardLoss(reward)
    optimizer = torch.optim.Adam([*ppo.parameters(), *bonus.parameters()], 3e-4)
    for data in Collector(env, actor, frames_per_batch=1024, total_frames=args.steps):
        with torch.no_grad():
            gae(data)
        for _ in range(4):
            for rows in torch.randperm(len(data)).split(256):
                losses = {**ppo(data[rows]), **bonus(data[rows])}
                optimizer.zero_grad()
                sum(loss for name, loss in losses.items() if name.startswith("loss_")).backward()
                optimizer.step()
                bonus.after_step()
            bonus.after_epoch()
        bonus.after_rollout()
        ends, mean = data["next", "done"].sum(), data["next", "intrinsic_reward"].mean()
        print(f"intrinsic reward {mean:.3f}, episodes {ends}")


if __name__ == "__main__":
    main()
