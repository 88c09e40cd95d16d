"""One episode of a trained agent: noisy and clean frames, and the bonus of every step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.bonuses.base import STAND_IN, Context, require_result
from ssedb.collect.rollout import STACK, Rollout
from ssedb.config import TrainConfig
from ssedb.envs.base import Env, Step
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.names import env_label
from ssedb.envs.rooms.env import RoomsEnv
from ssedb.errors import ConfigError
from ssedb.runs.agent import load
from ssedb.runs.blame import blaming
from ssedb.runs.folder import require_checkpoint, saved_config
from ssedb.runs.progress import Progress, silent

CHUNK = 256


@dataclass(frozen=True)
class Episode:
    """Episode of T steps.

    Observation t is the stack that ends with frame t. Step t leads from observation t to t + 1.
    """

    run: Path
    config: TrainConfig
    trained: int  # steps that the agent had been trained for
    seed: int
    seen: Tensor  # uint8 [T + 1, H, W], with noise
    clean: Tensor  # uint8 [T, H, W], without noise; on Rooms in colour, [T, H, W, 3]
    actions: Tensor  # int64 [T]
    rewards: Tensor  # float32 [T], extrinsic
    states: Tensor | None = None  # int64 [T], the true state acted in, where known

    def __len__(self) -> int:
        return len(self.actions)

    def stacks(self, t: Tensor) -> Tensor:
        """Return observations uint8 [B, 4, H, W] at times t [B]; the first frame repeats."""
        return self.seen[(t[:, None] + torch.arange(1 - STACK, 1)).clamp_min(0)]


@dataclass(frozen=True)
class BonusTrace:
    """Bonus and representation of one run at every step of an episode."""

    run: Path
    bonus_name: str
    trained: int
    bonus: np.ndarray  # float [T]
    features: np.ndarray | None  # float [T, D]; for DB the mean of z


def require_comparable(run: Path, other: Path | None = None) -> None:
    """Raise ConfigError if a run, or another one with it, cannot be analysed."""
    config = saved_config(run)
    require_checkpoint(run, config)
    if other is not None:
        rival = saved_config(other)
        require_checkpoint(other, rival)
        theirs, ours = (env_label(c.env, c.env_kwargs) for c in (rival, config))
        if theirs != ours:
            both = f"{other} is a run on {theirs} and {run} one on {ours}"
            raise ConfigError(f"{both}; compare runs on the same env")


def record_episode(
    run: Path,
    *,
    seed: int = 1000,
    max_steps: int | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> Episode:
    """Run one episode of a run's agent, as `ssedb eval` does.

    Args:
        run: folder of the run.
        seed: of environment, noise and actions.
        max_steps: ends the episode; the run's limit unless given.
        device: auto, cpu, cuda or cuda:N.
        progress: shows that the episode begins.
    """
    agent = load(run, device)
    agent.require_pictures()
    progress.note("running an episode")
    config = dataclasses.replace(agent.config, seed=seed)
    seen: list[Tensor] = []
    clean: list[Tensor] = []
    states: list[Tensor] = []
    actions: list[int] = []
    rewards: list[float] = []
    with blaming(run, agent.when, config=agent.config), torch.random.fork_rng():
        torch.manual_seed(seed)
        env = agent.make_env(1, seed=seed)
        env.env = source = _CleanFrames(env.env)
        first = env.reset()
        rollout = Rollout(1, 1, (first.shape[1], first.shape[2]), agent.device)
        rollout.begin(first)
        seen.append(first[0].cpu())
        done = False
        while not done and len(actions) < (max_steps or config.max_episode_steps):
            clean.append(source.picture())
            if (true := env.true_states()) is not None:
                states.append(true.clone().cpu())
            action = agent.act(rollout.obs(0))
            step = env.step(action)
            rollout.advance(step)
            done = bool(step.dones[0])
            frames = step.final_frames() if done and step.final_frames else step.frames
            seen.append(frames[0].cpu())
            actions.append(int(action[0]))
            rewards.append(float(step.rewards[0]))
        env.close()
    steps = torch.stack(seen), torch.stack(clean), torch.tensor(actions), torch.tensor(rewards)
    true = torch.cat(states) if states else None
    return Episode(run, config, agent.steps, seed, *steps, true)


def trace_bonus(episode: Episode, run: Path, device: str = "auto") -> BonusTrace:
    """Compute the bonus and representation of a run, the episode's or another, at every step."""
    require_comparable(episode.run, run)
    agent = load(run, device)
    target = agent.device
    with blaming(run, agent.when, config=agent.config), torch.random.fork_rng():
        torch.manual_seed(episode.seed)
        bonus = agent.make_bonus()
        rewards: list[Tensor] = []
        features: list[Tensor | None] = []
        for t in torch.arange(len(episode)).split(CHUNK):
            transitions = episode.stacks(t), episode.actions[t], episode.stacks(t + 1)
            batch: list[Any] = [x.to(target) for x in transitions]
            with torch.no_grad():
                features.append(bonus.features(*batch[:2]))
                if bonus.uses_context:
                    states = None if episode.states is None else episode.states[t].to(target)
                    episodes = torch.full((len(t),), STAND_IN, device=target)
                    batch.append(Context(episodes, states))
                reward = require_result(bonus, "reward", bonus.reward(*batch), t.shape)
                rewards.append(reward.float().cpu())
                if bonus.uses_context:  # an episodic memory needs the steps before
                    bonus.observe(*batch)
    known = [f.float().cpu() for f in features if f is not None]
    found = torch.cat(rewards).numpy(), torch.cat(known).numpy() if known else None
    return BonusTrace(run, agent.config.bonus, agent.steps, *found)


class _CleanFrames(Env):
    """Environment between a source and its noise, which keeps the last clean frame."""

    def __init__(self, env: Env) -> None:
        self.env, self.device = env, env.device
        self.num_envs, self.num_actions = env.num_envs, env.num_actions

    def reset(self) -> Tensor:
        self._frames = self.env.reset()
        return self._frames

    def step(self, actions: Tensor) -> Step:
        step = self.env.step(actions)
        self._frames = step.frames
        return step

    def picture(self) -> Tensor:
        """Return the last frame without noise, in colour on Rooms."""
        if isinstance(self.env, RoomsEnv):
            return self.env.world.pictures(self.env.state)[0].cpu()
        return to_agent_frames(self._frames)[0].cpu()

    def true_states(self) -> Tensor | None:
        return self.env.true_states()

    def close(self) -> None:
        self.env.close()
