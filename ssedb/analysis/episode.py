"""One episode of a trained agent: what it saw, what was there, and what a bonus pays for every step."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb import checkpoint, engine
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Context
from ssedb.config import TrainConfig
from ssedb.envs.base import Env, Step
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.rooms import RoomsEnv
from ssedb.errors import ConfigError
from ssedb.evaluate import load_policy
from ssedb.rollout import STACK, Rollout
from ssedb.runlog import require_checkpoint, resume_command, saved_config
from ssedb.trainer import env_of

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
        if rival.env != config.env:
            raise ConfigError(f"{other} is a run on {rival.env} and {run} one on {config.env}; compare runs on the same env")
    return config


def play_episode(run: Path, *, seed: int = 1000, max_steps: int | None = None, device: str = "auto") -> Episode:
    """Plays one episode as `ssedb eval` does, with the run's noise, and keeps all of it."""
    config = dataclasses.replace(check(run), seed=seed)
    engine.tune_allocator()
    place = engine.pick_device(device)
    state, about = _load(run, place)
    seen: list[Tensor] = []
    clean: list[Tensor] = []
    actions: list[int] = []
    rewards: list[float] = []
    states: list[Tensor] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        env = env_of(config, 1, stream=0, device=place)
        env.env = source = _Window(env.env)
        policy = load_policy(config, state, env.num_actions, place)
        first = env.reset()
        rollout = Rollout(1, 1, (first.shape[1], first.shape[2]), place)
        rollout.begin(first)
        seen.append(first[0].cpu())
        done = False
        while not done and len(actions) < (max_steps or config.max_episode_steps):
            clean.append(source.picture())
            if (true := env.true_states()) is not None:
                states.append(true.clone().cpu())
            action = policy.act(rollout.obs(0))[0]
            step = env.step(action)
            rollout.take(step)
            done = bool(step.dones[0])
            seen.append((step.final_frames() if done and step.final_frames is not None else step.frames)[0].cpu())
            actions.append(int(action[0]))
            rewards.append(float(step.rewards[0]))
        env.close()
    pictures, true = (torch.stack(seen), torch.stack(clean)), torch.cat(states) if states else None
    return Episode(
        run, config, about["steps"], seed, env.num_actions, *pictures, torch.tensor(actions), torch.tensor(rewards), true
    )


def read_episode(episode: Episode, run: Path, device: str = "auto") -> Reading:
    """The bonus and representation of a run, the one that played or another, at every step of the episode."""
    check(episode.run, run)
    config, place = saved_config(run), engine.pick_device(device)
    state, about = _load(run, place)
    with torch.random.fork_rng():
        torch.manual_seed(episode.seed)
        shape = (STACK, *episode.seen.shape[1:])
        bonus = make_bonus(config.bonus, shape, episode.num_actions, **config.bonus_options).to(place)
        try:
            bonus.load_state_dict(state["bonus"])
        except RuntimeError:
            raise ConfigError(f"the checkpoint in {run} does not fit this version of ssedb; train the run again") from None

        paid, features = [], []
        for t in torch.arange(len(episode)).split(CHUNK):
            pair = [x.to(place) for x in (episode.stacks(t), episode.actions[t], episode.stacks(t + 1))]
            with torch.no_grad():
                features.append(bonus.features(*pair[:2]))
                if bonus.uses_context:  # it may remember the episode, so it is told what has passed
                    states = None if episode.states is None else episode.states[t].to(place)
                    pair.append(Context(torch.full((len(t),), THIS_EPISODE, device=place), states))  # type: ignore[arg-type]
                paid.append(bonus.reward(*pair).float().cpu())
                if bonus.uses_context:
                    bonus.take_in(*pair)
    known = [f.float().cpu() for f in features if f is not None]
    return Reading(run, config.bonus, about["steps"], torch.cat(paid).numpy(), torch.cat(known).numpy() if known else None)


class _Window(Env):
    """Between a source and its noise: passes everything on and remembers the last clean frame."""

    def __init__(self, env: Env) -> None:
        self.env, self.num_envs, self.num_actions, self.device = env, env.num_envs, env.num_actions, env.device

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


def _load(run: Path, place: torch.device) -> tuple[dict[str, Any], dict[str, Any]]:
    saved = checkpoint.load_latest(run / "checkpoints", place)
    if saved is None:
        raise ConfigError(f"{run} has no checkpoint yet; let it train on with `{resume_command(run)}`")
    state, about, complaints = saved
    for complaint in complaints:
        print(f"{complaint}; using the one before it", file=sys.stderr)
    return state, about
