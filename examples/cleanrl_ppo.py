"""PPO in one file, in the manner of CleanRL, with an intrinsic reward: ten lines, marked `# bonus`.

python examples/cleanrl_ppo.py --total-timesteps 100000
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

import ssedb  # bonus


@dataclass
class Args:
    """Settings, each a flag."""

    env_id: str = "MountainCar-v0"
    """id of the environment"""
    bonus: str = "db"  # bonus
    """the intrinsic reward: a name of `ssedb list bonuses`, or package.module:Class"""
    intrinsic_coef: float = 1.0  # bonus
    """weight of the intrinsic reward"""
    extrinsic_coef: float = 1.0  # bonus
    """weight of the environment's reward; 0 switches it off"""
    seed: int = 1
    """seed of the run"""
    total_timesteps: int = 200_000
    """steps of all environments together"""
    learning_rate: float = 2.5e-4
    """Adam's rate for the agent"""
    num_envs: int = 8
    """environments side by side"""
    num_steps: int = 256
    """steps of each environment in a rollout"""
    gamma: float = 0.99
    """discount"""
    gae_lambda: float = 0.95
    """lambda of the advantage estimate"""
    minibatch_size: int = 256
    """transitions in a minibatch"""
    update_epochs: int = 4
    """passes over a rollout"""
    clip_coef: float = 0.2
    """how far a probability ratio may go from 1"""
    ent_coef: float = 0.01
    """weight of the entropy"""


class Agent(nn.Module):
    """Policy and value, each an MLP."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        inputs = int(np.prod(envs.single_observation_space.shape))
        sizes = {"actor": int(envs.single_action_space.n), "critic": 1}
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(
                    *(nn.Flatten(), nn.Linear(inputs, 64), nn.Tanh()),
                    *(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)),
                )
                for name, outputs in sizes.items()
            }
        )

    def forward(self, obs: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return the policy and the values of observations [B, ...]."""
        return Categorical(logits=self.heads["actor"](obs)), self.heads["critic"](obs).squeeze(-1)


def main(args: Args) -> None:
    """Train."""
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        args.env_id,
        args.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},  # bonus: true last observations
    )
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)
    reward = ssedb.IntrinsicReward(args.bonus, envs, gamma=args.gamma, seed=args.seed)  # bonus

    size = args.num_steps, args.num_envs
    obs = torch.zeros(*size, *envs.single_observation_space.shape)
    actions, log_probs, rewards, dones = (torch.zeros(size) for _ in range(4))
    values = torch.zeros(args.num_steps + 1, args.num_envs)
    seen, _ = envs.reset(seed=args.seed)
    returns_of_episodes, running = [], np.zeros(args.num_envs)

    for iteration in range(1, args.total_timesteps // (args.num_steps * args.num_envs) + 1):
        for step in range(args.num_steps):
            obs[step] = torch.as_tensor(seen)
            with torch.no_grad():
                policy, values[step] = agent(obs[step])
            action = policy.sample()
            actions[step], log_probs[step] = action, policy.log_prob(action)
            after, game_reward, terminated, truncated, info = envs.step(action.numpy())
            done = terminated | truncated
            final = after.copy()
            for i in np.flatnonzero(done):
                final[i] = info["final_obs"][i]  # bonus
            reward.watch(seen, action, game_reward, terminated, truncated, final)  # bonus
            rewards[step], dones[step] = torch.as_tensor(game_reward), torch.as_tensor(done)
            seen, running = after, running + game_reward
            returns_of_episodes += running[done].tolist()
            running[done] = 0

        intrinsic = reward.compute().cpu()  # bonus
        total = args.extrinsic_coef * rewards + args.intrinsic_coef * intrinsic  # bonus, before GAE

        with torch.no_grad():
            values[-1] = agent(torch.as_tensor(seen, dtype=torch.float32))[1]
        advantages, after_it = torch.zeros(size), torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            going_on = 1 - dones[t]
            delta = total[t] + args.gamma * going_on * values[t + 1] - values[t]
            advantages[t] = after_it = delta + args.gamma * args.gae_lambda * going_on * after_it
        targets = advantages + values[:-1]

        flat = [x.flatten(0, 1) for x in (obs, actions, log_probs, advantages, targets)]
        for _ in range(args.update_epochs):
            for rows in torch.randperm(args.num_steps * args.num_envs).split(args.minibatch_size):
                b_obs, b_actions, b_log_probs, b_advantages, b_targets = (x[rows] for x in flat)
                policy, value = agent(b_obs)
                ratio = (policy.log_prob(b_actions) - b_log_probs).exp()
                b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                policy_loss = -torch.min(ratio * b_advantages, clipped * b_advantages).mean()
                value_loss = 0.5 * (value - b_targets).square().mean()
                loss = policy_loss + 0.5 * value_loss - args.ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

        score = np.mean(returns_of_episodes[-20:]) if returns_of_episodes else float("nan")
        print(f"{iteration}: return {score:.1f}, bonus {reward.metrics['bonus_raw']:.5f}")
    envs.close()


if __name__ == "__main__":
    main(tyro.cli(Args))
