"""PPO with RND in plain eager PyTorch, after CleanRL's published single-file trainer.

    python benchmarks/cleanrl_rnd.py --minutes 5             # Breakout on the game's emulators

The algorithm and its settings are those of CleanRL's `ppo_rnd_envpool.py`
(https://docs.cleanrl.dev/rl-algorithms/ppo-rnd/); the code is our own. What differs:

- The intrinsic reward alone trains (their `--ext-coef 0`). The value of the game's reward, which
  theirs would still fit, is left out: the agent must not see that reward.
- The emulators are ours: ale-py's AtariVectorEnv instead of envpool, with the settings of
  `ssedb.envs.atari`: whole games instead of lives, no sticky actions, no fire at the start.
- Moments of frames are summed on the device. Theirs pass through Python lists, which takes longer
  than the emulators do.
- Gradients of the reward's forward pass are not recorded, and the policy's forward pass gives
  actions and values at once. Both save time and change no number.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.distributions import Categorical

from ssedb.collect.scores import Scores


@dataclass(frozen=True)
class Settings:
    """CleanRL's, by their names there."""

    num_envs: int = 128
    num_steps: int = 128
    total_timesteps: int = 2_000_000_000
    learning_rate: float = 1e-4
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    clip_coef: float = 0.1
    ent_coef: float = 0.001
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    update_proportion: float = 0.25
    int_gamma: float = 0.99
    num_iterations_obs_norm_init: int = 50


def emulators(game: str, num_envs: int) -> AtariVectorEnv:
    """Make the emulators of `ssedb.envs.atari`, with stacks of 4."""
    return AtariVectorEnv(
        game,
        num_envs,
        stack_num=4,
        frameskip=4,
        noop_max=31,
        max_num_frames_per_episode=4 * 4500,
        repeat_action_probability=0.0,
        reward_clipping=False,
        use_fire_reset=False,
        episodic_life=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float = 2**0.5) -> nn.Linear | nn.Conv2d:
    """Set orthogonal weights and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def convolutions(channels: int, activation: type[nn.Module]) -> list[nn.Module]:
    """Return the three convolutions that all networks begin with, to 3136 features."""
    sizes = [(channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
    layers = [(orthogonal(nn.Conv2d(*size)), activation()) for size in sizes]
    return [*(module for layer in layers for module in layer), nn.Flatten()]


def dense(inputs: int, outputs: int, gain: float = 2**0.5) -> list[nn.Module]:
    """Return a dense layer and its activation."""
    return [orthogonal(nn.Linear(inputs, outputs), gain), nn.ReLU()]


class Agent(nn.Module):
    """Policy and value of the intrinsic reward."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        layers = [*convolutions(4, nn.ReLU), *dense(3136, 256), *dense(256, 448)]
        self.network = nn.Sequential(*layers)
        self.extra = nn.Sequential(*dense(448, 448, 0.1))
        last = orthogonal(nn.Linear(448, actions), 0.01)
        self.actor = nn.Sequential(*dense(448, 448, 0.01), last)
        self.critic = orthogonal(nn.Linear(448, 1), 0.01)

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        """Return the policy and the value [B] of stacks [B, 4, 84, 84]."""
        hidden = self.network(obs / 255.0)
        value = self.critic(self.extra(hidden) + hidden).squeeze(-1)
        return Categorical(logits=self.actor(hidden), validate_args=False), value


class RND(nn.Module):
    """Predictor of a random network's features of the newest frame."""

    def __init__(self) -> None:
        super().__init__()
        last = orthogonal(nn.Linear(512, 512))
        self.predictor = nn.Sequential(
            *convolutions(1, nn.LeakyReLU), *dense(3136, 512), *dense(512, 512), last
        )
        self.target = nn.Sequential(
            *convolutions(1, nn.LeakyReLU), orthogonal(nn.Linear(3136, 512))
        ).requires_grad_(False)

    def errors(self, frames: Tensor) -> Tensor:
        """Return squared errors [B, 512] on scaled frames [B, 1, 84, 84]."""
        return (self.predictor(frames) - self.target(frames)).square()


class Moments:
    """Running mean and variance over batches, as Chan et al. merge them."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.mean = torch.zeros(shape, device=device, dtype=torch.float64)
        self.var = torch.ones(shape, device=device, dtype=torch.float64)
        self.count = 1e-4

    def add(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Merge the moments of a batch."""
        delta, total = mean - self.mean, self.count + count
        between = delta.square() * self.count * count / total
        self.var = (self.var * self.count + var * count + between) / total
        self.mean = self.mean + delta * count / total
        self.count = total

    def add_frames(self, frames: Tensor) -> None:
        """Merge frames [B, 1, 84, 84]."""
        frames = frames.double()
        self.add(frames.mean(0), frames.var(0, correction=0), len(frames))

    def scale(self, frames: Tensor) -> Tensor:
        """Return frames less their mean, over their std, clipped to 5."""
        return ((frames - self.mean) / self.var.sqrt()).clamp(-5, 5).float()


class Learner:
    """What is trained, on what device, by which settings."""

    def __init__(self, actions: int, settings: Settings, device: torch.device) -> None:
        self.settings, self.device = settings, device
        self.agent, self.rnd = Agent(actions).to(device), RND().to(device)
        self.trained = [*self.agent.parameters(), *self.rnd.predictor.parameters()]
        self.adam = torch.optim.Adam(self.trained, lr=settings.learning_rate, eps=1e-5)
        self.frames = Moments((1, 84, 84), device)
        self.sums = Moments((), device)
        self.running: Tensor | float = 0.0

    def normalize(self, rewards: Tensor) -> Tensor:
        """Divide rewards [T, N] by the std of their discounted sums."""
        # Along environments, one row after the other: the published code transposes here.
        sums = []
        for row in rewards.T.double():
            self.running = self.running * self.settings.int_gamma + row
            sums.append(self.running)
        filtered = torch.stack(sums)
        self.sums.add(filtered.mean(), filtered.var(correction=0), len(filtered))
        return rewards / self.sums.var.sqrt().float()

    def advantages(self, rewards: Tensor, values: Tensor) -> Tensor:
        """Return advantages [T, N] of rewards [T, N] and values [T + 1, N]; no episode ends."""
        s, found = self.settings, torch.zeros_like(rewards)
        last = torch.zeros_like(rewards[0])
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + s.int_gamma * values[t + 1] - values[t]
            found[t] = last = delta + s.int_gamma * s.gae_lambda * last
        return found

    def step(
        self,
        obs: Tensor,
        frames: Tensor,
        actions: Tensor,
        log_probs: Tensor,
        advantages: Tensor,
        returns: Tensor,
    ) -> None:
        """Take a gradient step on one minibatch; everything is [B, ...]."""
        s = self.settings
        mask = (torch.rand(len(obs), device=self.device) < s.update_proportion).float()
        prediction = (self.rnd.errors(frames).mean(-1) * mask).sum() / mask.sum().clamp_min(1)
        policy, values = self.agent(obs)
        ratio = (policy.log_prob(actions) - log_probs).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - s.clip_coef, 1 + s.clip_coef)
        surrogate = torch.min(advantages * ratio, advantages * clipped).mean()
        value = 0.5 * (values - returns).square().mean()
        loss = prediction - surrogate - s.ent_coef * policy.entropy().mean() + s.vf_coef * value
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, s.max_grad_norm)
        self.adam.step()


def train(
    game: str, device: torch.device, seed: int = 1, settings: Settings | None = None
) -> Iterator[tuple[int, Scores]]:
    """Train for ever; yield steps and scores after the random agent and after each iteration."""
    s = settings or Settings()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = emulators(game, s.num_envs)
    choices = int(env.single_action_space.n)
    learner, scores = Learner(choices, s, device), Scores(s.num_envs)

    def to_device(stacks: np.ndarray) -> Tensor:
        return torch.from_numpy(stacks).to(device).float()

    stacks = env.reset(seed=seed)[0]
    for _ in range(s.num_iterations_obs_norm_init * s.num_steps):  # a random agent looks around
        stacks, *_ = env.step(rng.integers(choices, size=s.num_envs))
        learner.frames.add_frames(to_device(stacks[:, -1:]))
    yield 0, scores

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(s.num_steps, s.num_envs, *shape, device=device)

    obs, actions, log_probs, curiosity = zeros(4, 84, 84), zeros().long(), zeros(), zeros()
    values = torch.zeros(s.num_steps + 1, s.num_envs, device=device)
    game_rewards, dones = np.zeros((2, s.num_steps, s.num_envs))
    now, steps = to_device(stacks), 0
    while True:
        learner.adam.param_groups[0]["lr"] = s.learning_rate * (1 - steps / s.total_timesteps)
        with torch.no_grad():
            for t in range(s.num_steps):
                policy, values[t] = learner.agent(now)
                obs[t], actions[t] = now, policy.sample()
                log_probs[t] = policy.log_prob(actions[t])
                stacks, game_rewards[t], ended, cut, _ = env.step(actions[t].cpu().numpy())
                dones[t] = ended | cut
                now = to_device(stacks)
                scaled = learner.frames.scale(now[:, -1:])
                curiosity[t] = learner.rnd.errors(scaled).sum(1) / 2
            values[-1] = learner.agent(now)[1]
            advantages = learner.advantages(learner.normalize(curiosity), values)
            returns = advantages + values[:-1]
            learner.frames.add_frames(obs[:, :, -1:].flatten(0, 1))
            frames = learner.frames.scale(obs[:, :, -1:].flatten(0, 1))
        several = (obs, actions, log_probs, advantages, returns)
        stored = [part.flatten(0, 1) for part in several]
        for _ in range(s.update_epochs):
            for rows in torch.randperm(len(frames), device=device).chunk(s.num_minibatches):
                minibatch = [part[rows] for part in stored]
                learner.step(minibatch[0], frames[rows], *minibatch[1:])
        steps += s.num_steps * s.num_envs
        scores.add(game_rewards, dones.astype(bool))
        yield steps, scores


def main() -> None:
    import time

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.monotonic()
    for steps, scores in train(options.env, device, options.seed):
        minutes = (time.monotonic() - began) / 60
        print(f"{minutes:.2f} minutes, {steps:,} steps, {scores.summary()}", flush=True)
        if minutes > options.minutes:
            return


if __name__ == "__main__":
    main()
