"""One episode of a trained agent: what it saw, what was there, and what a bonus pays for every step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ssedb.bonuses.base import Context
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

CHUNK = 256
THIS_EPISODE = -2
"""A number that no episode of training has."""


@dataclass(frozen=True)
class Episode:
    """T steps. Observation t is the stack that ends with frame t; the bonus of step t is for leaving it."""

    run: Path
    config: TrainConfig
    trained: int  # steps that the agent had learned for
    seed: int
    num_actions: int
    seen: Tensor  # uint8 [T + 1, H, W], what the agent saw
    clean: Tensor  # uint8 [T, H, W], or [T, H, W, 3] in colour on Rooms: the same without the noise
    actions: Tensor  # int64 [T]
    rewards: Tensor  # float32 [T], the game's own
    states: Tensor | None = None  # int64 [T], the true state acted in, where the world tells it

    def __len__(self) -> int:
        return len(self.actions)

    def stacks(self, t: Tensor) -> Tensor:
        """Observations uint8 [B, 4, H, W]; before the first frame there is only the first frame."""
        return self.seen[(t[:, None] + torch.arange(1 - STACK, 1)).clamp_min(0)]


@dataclass(frozen=True)
class Reading:
    """What one run's bonus makes of an episode."""

    run: Path
    bonus_name: str
    trained: int
    bonus: np.ndarray  # float [T]
    features: np.ndarray | None  # float [T, D], the representation behind it (for DB the mean of z)


def check(run: Path, other: Path | None = None) -> TrainConfig:
    """Mistakes that can be named before anything is played."""
    config = saved_config(run)
    require_checkpoint(run, config)
    if other is not None:
        rival = saved_config(other)
        require_checkpoint(other, rival)
        theirs, ours = (env_label(c.env, c.env_kwargs) for c in (rival, config))
        if theirs != ours:
            both = f"{other} is a run on {theirs} and {run} one on {ours}"
            raise ConfigError(f"{both}; compare runs on the same env")
    return config


def play_episode(
    run: Path, *, seed: int = 1000, max_steps: int | None = None, device: str = "auto"
) -> Episode:
    """Plays one episode as `ssedb eval` does, with the run's noise, and keeps all of it."""
    agent = load(run, device)
    config = dataclasses.replace(agent.config, seed=seed)
    seen: list[Tensor] = []
    clean: list[Tensor] = []
    states: list[Tensor] = []
    actions: list[int] = []
    rewards: list[float] = []
    with blaming(run, agent.when), torch.random.fork_rng():
        torch.manual_seed(seed)
        env = agent.make_env(1, seed=seed)
        env.env = source = _Window(env.env)
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
            rollout.take(step)
            done = bool(step.dones[0])
            frames = step.final_frames() if done and step.final_frames else step.frames
            seen.append(frames[0].cpu())
            actions.append(int(action[0]))
            rewards.append(float(step.rewards[0]))
        env.close()
    steps = torch.stack(seen), torch.stack(clean), torch.tensor(actions), torch.tensor(rewards)
    true = torch.cat(states) if states else None
    return Episode(run, config, agent.steps, seed, env.num_actions, *steps, true)


def read_episode(episode: Episode, run: Path, device: str = "auto") -> Reading:
    """The bonus and representation of a run, the one that played or another, at every step of the episode."""
    check(episode.run, run)
    agent = load(run, device)
    place = agent.device
    with torch.random.fork_rng():
        torch.manual_seed(episode.seed)
        bonus = agent.make_bonus()
        paid, features = [], []
        for t in torch.arange(len(episode)).split(CHUNK):
            step = episode.stacks(t), episode.actions[t], episode.stacks(t + 1)
            pair = [x.to(place) for x in step]
            with torch.no_grad():
                features.append(bonus.features(*pair[:2]))
                if bonus.uses_context:  # it may remember the episode, so it is told what has passed
                    states = None if episode.states is None else episode.states[t].to(place)
                    pair.append(Context(torch.full((len(t),), THIS_EPISODE, device=place), states))  # type: ignore[arg-type]
                paid.append(bonus.reward(*pair).float().cpu())
                if bonus.uses_context:
                    bonus.observe(*pair)
    known = [f.float().cpu() for f in features if f is not None]
    found = torch.cat(paid).numpy(), torch.cat(known).numpy() if known else None
    return Reading(run, agent.config.bonus, agent.steps, *found)


class _Window(Env):
    """Between a source and its noise: passes everything on and remembers the last clean frame."""

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
        """What is really there: in colour where the world can draw it for people."""
        if isinstance(self.env, RoomsEnv):
            return self.env.world.pictures(self.env.state)[0].cpu()
        return to_agent_frames(self._frames)[0].cpu()

    def true_states(self) -> Tensor | None:
        return self.env.true_states()

    def close(self) -> None:
        self.env.close()
