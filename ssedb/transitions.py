"""Transitions to measure a bonus on: each without noise, and under many draws of it."""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ssedb.actions import action_space
from ssedb.bonuses.base import Bonus, Context, episode_numbers, require_result
from ssedb.collect.rollout import STACK
from ssedb.config import TrainConfig
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.noisy import NoiseState
from ssedb.envs.rooms.world import World
from ssedb.errors import ConfigError
from ssedb.noises.base import Noise

CHUNK = 1024


@dataclass(frozen=True)
class Transitions:
    """M clean transitions, and K noisy copies of them."""

    clean: Tensor  # uint8 [STACK + 1, M, H, W]: the frames of both stacks
    noisy: Tensor  # uint8 [STACK + 1, K, M, H, W]
    actions: Tensor  # int64 [M]
    states: Tensor | None = None  # int64 [M], the true state acted in, on Rooms

    def pair(self, draw: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return (obs, actions, next_obs) of one draw, or without noise."""
        frames = self.clean if draw is None else self.noisy[:, draw]
        stacks = frames.transpose(0, 1)
        return stacks[:, :-1].contiguous(), self.actions, stacks[:, 1:].contiguous()


def draw_transitions(
    world: World, visited: Tensor | None, count: int, draws: int, noise: Noise, seed: int
) -> Transitions:
    """Draw transitions of Rooms: the ends of random walks from uniformly drawn states.

    Args:
        world: the world of Rooms.
        visited: states, bool [states], from which half of the walks start; else all reachable ones.
        count: M, how many transitions.
        draws: K, how many draws of the noise.
        noise: the noise.
        seed: of walks and noise.
    """
    device = world.device
    drawn: dict[str, Any] = dict(generator=torch.Generator(device).manual_seed(seed), device=device)

    def choose(pool: Tensor, n: int) -> Tensor:
        states = torch.nonzero(pool).flatten()
        return states[torch.randint(len(states), (n,), **drawn)]

    known = visited if visited is not None and visited.any() else world.reachable()
    chosen = torch.cat([choose(world.reachable(), count // 2), choose(known, count - count // 2)])
    # Linear probes train on the first half, so both kinds of states are mixed.
    mixed = torch.randperm(count, **drawn)
    state = world.state_of(chosen[mixed])
    where: dict[str, Any] = dict(seed=seed, device=device, side=world.side)
    noise_state = NoiseState(noise, draws * count, world.num_actions, **where)
    clean = [world.frames(state)]
    noisy = [noise_state.agent_frames(clean[0].repeat(draws, 1, 1))]
    never = torch.zeros(draws * count, dtype=torch.bool, device=device)
    for _ in range(STACK):
        ids = world.state_ids(state)
        actions = torch.randint(world.num_actions, (count,), **drawn)
        state, _ = world.move(state, actions)
        noise_state.advance(actions.repeat(draws), never)
        clean.append(world.frames(state))
        noisy.append(noise_state.agent_frames(clean[-1].repeat(draws, 1, 1)))
    by_draw = torch.stack(noisy).unflatten(1, (draws, count))
    return Transitions(torch.stack(clean), by_draw, actions, ids)


COLLECT_ENVS, COLLECT_APART = 16, 12
"""Where true states are unknown: environments, and usual steps between two transitions of one."""


def collect_transitions(
    config: TrainConfig, count: int, draws: int, seed: int, device: torch.device
) -> Transitions:
    """Collect transitions of a random agent in a run's environment, without and with noise.

    Args:
        config: the run's settings.
        count: M, how many transitions.
        draws: K, how many draws of the noise.
        seed: of environment, noise and actions.
        device: where the tensors are.
    """
    from ssedb.collect.environments import env_of

    env = env_of(dataclasses.replace(config, seed=seed), COLLECT_ENVS, seed_key=3, device=device)
    noise, envs = env.noise_state.noise, draws * COLLECT_ENVS
    noise_state = NoiseState(noise, envs, env.num_actions, seed=seed, device=device, side=env.side)
    generator, gaps = (torch.Generator().manual_seed(seed + i) for i in range(2))
    space = action_space(env.num_actions)
    frames = env.env.reset()
    clean: deque[Tensor] = deque(maxlen=STACK + 1)
    noisy: deque[Tensor] = deque(maxlen=STACK + 1)
    actions: list[Tensor] = []
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    age = torch.zeros(COLLECT_ENVS, dtype=torch.int64, device=device)
    due = COLLECT_APART
    repeated = (draws, *[1] * (frames.ndim - 1))
    while sum(len(chosen) for _, _, chosen in found) < count:
        # Long enough to find them several times over if episodes last.
        if len(actions) > COLLECT_APART * (count + 100):
            raise ConfigError(
                f"{config.env}: episodes end too soon to be probed; none lasts {STACK} steps"
            )
        seen = noise_state.agent_frames(frames.repeat(repeated)).unflatten(0, (draws, COLLECT_ENVS))
        clean.append(to_agent_frames(frames, env.side))
        noisy.append(seen)
        if len(actions) == due:
            # At random, or episodes of a fixed length would always be met at the same steps.
            due += 1 + COLLECT_APART // 2 + int(torch.randint(COLLECT_APART, (), generator=gaps))
            if (whole := age >= STACK).any():
                stacks = torch.stack(list(clean))[:, whole], torch.stack(list(noisy))[:, :, whole]
                found.append((*stacks, actions[-1][whole]))
        actions.append(space.random(COLLECT_ENVS, generator).to(device))
        step = env.env.step(actions[-1])
        frames, age = step.frames, torch.where(step.dones, 0, age + 1)
        noise_state.advance(actions[-1].repeat(draws), step.dones.repeat(draws))
    env.close()
    parts = list(zip(*found, strict=True))
    stacks = torch.cat(parts[0], 1)[:, :count], torch.cat(parts[1], 2)[:, :, :count]
    return Transitions(*stacks, torch.cat(parts[2])[:count])


def rewards_of(bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    """Return the bonus [M] under one draw, or without noise."""

    def reward(obs: Tensor, actions: Tensor, *rest: Any) -> Tensor:
        rewards = bonus.reward(obs, actions, *rest)
        return require_result(bonus, "reward", rewards, actions.shape[:1])

    return _in_chunks(reward, bonus, data, draw)


def experience(bonus: Bonus, data: Transitions, draw: int | None, rows: slice) -> tuple[Any, ...]:
    """Return some transitions of one draw, and a context if the bonus uses one.

    Each transition is an episode of its own.
    """
    batch = tuple(x[rows] for x in data.pair(draw))
    if not bonus.uses_context:
        return batch
    states = None if data.states is None else data.states[rows]
    return (*batch, Context(episode_numbers(batch[1]), states))


def rewards_and_features(bonus: Bonus, data: Transitions) -> tuple[Tensor, Tensor | None]:
    """Return the bonus [K, M] and its representation [K, M, D] or None, under every draw."""
    draws = range(data.noisy.shape[1])
    rewards = torch.stack([rewards_of(bonus, data, k) for k in draws])
    if bonus.features(*experience(bonus, data, 0, slice(1))[:2]) is None:
        return rewards, None
    features = partial(_in_chunks, lambda o, a, *_: bonus.features(o, a), bonus, data)
    return rewards, torch.stack([features(k) for k in draws])


def _in_chunks(function: Any, bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    chunks = [slice(i, i + CHUNK) for i in range(0, len(data.actions), CHUNK)]
    with torch.no_grad():
        return torch.cat([function(*experience(bonus, data, draw, rows)) for rows in chunks])
