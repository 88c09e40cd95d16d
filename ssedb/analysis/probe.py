"""Is the bonus right? Asked about fixed transitions under many draws of the noise."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ssedb.analysis import measures
from ssedb.analysis.practice import make_adam, practise
from ssedb.bonuses.base import Bonus, Context
from ssedb.collect.rollout import STACK
from ssedb.config import TrainConfig
from ssedb.envs.frames import to_agent_frames
from ssedb.envs.names import rooms_world
from ssedb.envs.noisy import Observer
from ssedb.envs.rooms.world import World
from ssedb.errors import ConfigError
from ssedb.noises import noise_class, noise_of
from ssedb.noises.base import Noise
from ssedb.runs.agent import load
from ssedb.runs.blame import blaming

CHUNK = 1024
FALL_BATCH = 128
FALL_AT = (0, 1, 2, 5, 10, 20, 50)
"""Gradient steps after which the bonus of the transitions trained on is looked at."""


@dataclass(frozen=True)
class Transitions:
    """Clean transitions and the same under K draws of a noise."""

    clean: Tensor  # uint8 [STACK + 1, M, H, W]: the frames of both stacks
    noisy: Tensor  # uint8 [STACK + 1, K, M, H, W]
    actions: Tensor  # int64 [M]
    states: Tensor | None = None  # int64 [M], the true state acted in, on Rooms

    def pair(self, draw: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """(obs, actions, next_obs) of one draw, or clean."""
        frames = self.clean if draw is None else self.noisy[:, draw]
        stacks = frames.transpose(0, 1)
        return stacks[:, :-1].contiguous(), self.actions, stacks[:, 1:].contiguous()


@dataclass(frozen=True)
class Probe:
    """What the probe found. None where a bonus has no representation, a run no counts, or the environment no true states."""

    noise: str
    bonus_mean: float
    bonus_noise_share: float
    count_correlation: float | None
    feature_noise_share: float | None
    room_accuracy: float | None
    place_explained: float | None
    noise_explained: float | None
    fall_steps: tuple[int, ...]
    fall_clean: tuple[float, ...]
    fall_noisy: tuple[float, ...]


def draw_transitions(
    world: World, visited: Tensor | None, count: int, draws: int, noise: Noise, seed: int
) -> Transitions:
    """Random walks from states chosen evenly: half from all that can be reached, half from those visited, if any were."""
    device = world.device
    drawn: dict[str, Any] = dict(generator=torch.Generator(device).manual_seed(seed), device=device)

    def choose(pool: Tensor, n: int) -> Tensor:
        states = torch.nonzero(pool).flatten()
        return states[torch.randint(len(states), (n,), **drawn)]

    known = visited if visited is not None and visited.any() else world.reachable()
    chosen = torch.cat([choose(world.reachable(), count // 2), choose(known, count - count // 2)])
    mixed = torch.randperm(count, **drawn)  # linear probes learn from the first half
    state = world.state_of(chosen[mixed])
    where: dict[str, Any] = dict(seed=seed, device=device, side=world.side)
    eyes = Observer(noise, draws * count, world.num_actions, **where)
    clean, noisy = [world.frames(state)], [eyes.observe(world.frames(state).repeat(draws, 1, 1))]
    never = torch.zeros(draws * count, dtype=torch.bool, device=device)
    for _ in range(STACK):
        ids = world.state_ids(state)
        actions = torch.randint(world.num_actions, (count,), **drawn)
        state, _ = world.move(state, actions)
        eyes.advance(actions.repeat(draws), never)
        clean.append(world.frames(state))
        noisy.append(eyes.observe(clean[-1].repeat(draws, 1, 1)))
    by_draw = torch.stack(noisy).unflatten(1, (draws, count))
    return Transitions(torch.stack(clean), by_draw, actions, ids)


PLAYED_ENVS, PLAYED_APART = 16, 12
"""Where true states are not known: games played at once, and steps between two transitions of one of them."""


def play_transitions(
    config: TrainConfig, count: int, draws: int, seed: int, device: torch.device
) -> Transitions:
    """What a random agent meets in the run's environment, before and under the noise."""
    from ssedb.collect.environments import env_of

    env = env_of(dataclasses.replace(config, seed=seed), PLAYED_ENVS, stream=3, device=device)
    noise, envs = env.observer.noise, draws * PLAYED_ENVS
    eyes = Observer(noise, envs, env.num_actions, seed=seed, device=device, side=env.side)
    generator = torch.Generator().manual_seed(seed)
    frames = env.env.reset()
    clean: deque[Tensor] = deque(maxlen=STACK + 1)
    noisy: deque[Tensor] = deque(maxlen=STACK + 1)
    actions: list[Tensor] = []
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    age = torch.zeros(PLAYED_ENVS, dtype=torch.int64, device=device)
    repeated = (draws, *[1] * (frames.ndim - 1))
    while sum(len(part[2]) for part in found) < count:
        # An even chance would have found them several times over.
        if len(actions) > PLAYED_APART * (count + 100):
            raise ConfigError(
                f"{config.env}: episodes end too soon to be probed; none lasts {STACK} steps"
            )
        seen = eyes.observe(frames.repeat(repeated)).unflatten(0, (draws, PLAYED_ENVS))
        clean.append(to_agent_frames(frames, env.side))
        noisy.append(seen)
        if len(actions) % PLAYED_APART == 0 and (whole := age >= STACK).any():
            stacks = torch.stack(list(clean))[:, whole], torch.stack(list(noisy))[:, :, whole]
            found.append((*stacks, actions[-1][whole]))
        drawn = torch.randint(env.num_actions, (PLAYED_ENVS,), generator=generator)
        actions.append(drawn.to(device))
        step = env.env.step(actions[-1])
        frames, age = step.frames, torch.where(step.dones, 0, age + 1)
        eyes.advance(actions[-1].repeat(draws), step.dones.repeat(draws))
    env.close()
    parts = list(zip(*found, strict=True))
    stacks = torch.cat(parts[0], 1)[:, :count], torch.cat(parts[1], 2)[:, :, :count]
    return Transitions(*stacks, torch.cat(parts[2])[:count])


def probe_bonus(
    bonus: Bonus,
    world: World | None,
    data: Transitions,
    pair_visits: Tensor | None,
    noise: str,
    learning_rate: float,
) -> Probe:
    """All measures of one bonus; `pair_visits` is N(s, a) of the run that trained it."""
    draws = data.noisy.shape[1]
    rewards, features = rewards_and_features(bonus, data)
    # [M, 16]: how the noise changed the newest frame, coarsely
    difference = data.noisy[-2, 0].float() - data.clean[-2].float()
    fields = adaptive_avg_pool2d(difference[:, None], 4).flatten(1)
    counted = None if pair_visits is None else count_correlation(rewards, data, pair_visits)
    fall = {draw: _fall(bonus, data, draw, learning_rate) for draw in (None, draws)}
    return Probe(
        noise=noise,
        bonus_mean=float(rewards.mean()),
        bonus_noise_share=measures.noise_share(rewards),
        count_correlation=counted,
        feature_noise_share=None if features is None else measures.noise_share(features),
        **_place_told(features, world, data),
        noise_explained=None if features is None else measures.explained_share(features[0], fields),
        fall_steps=FALL_AT,
        fall_clean=fall[None],
        fall_noisy=fall[draws],
    )


def rewards_and_features(bonus: Bonus, data: Transitions) -> tuple[Tensor, Tensor | None]:
    """The bonus [K, M] and its representation [K, M, D], if it has one, under every draw."""
    draws = range(data.noisy.shape[1])
    rewards = torch.stack([rewards_of(bonus, data, k) for k in draws])
    if bonus.features(*experience(bonus, data, 0, slice(1))[:2]) is None:
        return rewards, None
    features = partial(_in_chunks, lambda o, a, *_: bonus.features(o, a), bonus, data)
    return rewards, torch.stack([features(k) for k in draws])


def _place_told(
    features: Tensor | None, world: World | None, data: Transitions
) -> dict[str, float | None]:
    """How well a linear probe reads the agent's room and place from the features."""
    if features is None or world is None or data.states is None:
        return {"room_accuracy": None, "place_explained": None}
    cell = data.states // world.scenes_per_cell
    place = torch.tensor(world.cells, device=world.device)[cell]
    return {
        "room_accuracy": measures.probe_accuracy(features[0], world.room_of_cell[cell]),
        "place_explained": measures.explained_share(features[0], place),
    }


def count_correlation(rewards: Tensor, data: Transitions, pair_visits: Tensor) -> float:
    """Spearman's rank correlation of the bonus [K, M], averaged over draws, with what a count would pay."""
    visits = pair_visits[data.states, data.actions]
    return measures.rank_correlation(rewards.mean(0), (visits + 1.0).rsqrt())


def rewards_of(bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    """The bonus [M] under one draw, or clean."""
    return _in_chunks(bonus.reward, bonus, data, draw)


def experience(bonus: Bonus, data: Transitions, draw: int | None, rows: slice) -> tuple[Any, ...]:
    """Some transitions of one draw, and their context where the bonus uses one: each is an episode of its own."""
    batch = tuple(x[rows] for x in data.pair(draw))
    if not bonus.uses_context:
        return batch
    episodes = -2 - torch.arange(len(batch[1]), device=data.actions.device)
    return (*batch, Context(episodes, None if data.states is None else data.states[rows]))


def _fall(
    bonus: Bonus, data: Transitions, draws: int | None, learning_rate: float
) -> tuple[float, ...]:
    """The mean bonus of a few transitions as they are trained on again and again, clean or under a new draw each time."""
    twin = copy.deepcopy(bonus)
    adam = make_adam(twin, learning_rate)
    found = []
    for step in range(FALL_AT[-1] + 1):
        batch = experience(twin, data, None if draws is None else step % draws, slice(FALL_BATCH))
        if step in FALL_AT:
            found.append(float(twin.reward(*batch).mean()))
        practise(twin, batch, adam)
    return tuple(found)


def _in_chunks(function: Any, bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    chunks = [slice(i, i + CHUNK) for i in range(0, len(data.actions), CHUNK)]
    with torch.no_grad():
        return torch.cat([function(*experience(bonus, data, draw, rows)) for rows in chunks])


def check(config: TrainConfig, transitions: int, draws: int) -> None:
    """Mistakes that can be named before anything is loaded."""
    noise = noise_class(config.noise)
    if noise.changes_actions() and not noise.changes_frames():
        other = "name another with --noise, such as random-box"
        raise ConfigError(f"noise={config.noise}: the probe draws noise over pictures; {other}")
    for name, value, least in (("transitions", transitions, 128), ("draws", draws, 2)):
        if value < least:
            raise ConfigError(f"{name}={value}: must be {least} or more")


def probe_run(
    run: Path, *, fresh: bool = False, noise: str | None = None, transitions: int = 1024, draws: int = 8,
    seed: int = 0, device: str = "auto",
) -> tuple[Probe, Path]:  # fmt: skip
    """Probes the bonus of a run (or a fresh one of its kind) and writes `probe.json` and `probe.png` there."""
    from ssedb.analysis.plots import plot_probe
    from ssedb.runs.files import write_json
    from ssedb.runs.folder import saved_config

    config = saved_config(run)
    if noise is not None:
        config = dataclasses.replace(config, noise=noise)
    check(config, transitions, draws)
    agent = load(run, device)
    place, state = agent.device, agent.state
    world = pair_visits = None
    if named := rooms_world(config.env):
        world, counts = World(*named, place), state["env"]["env"].get("visit_counts")
        if counts is None:
            raise ConfigError(f"{run} holds no visit counts; another version of ssedb wrote it")
        pair_visits = counts["pair_visits"]
        seen = counts["visits"] > 0
        data = draw_transitions(world, seen, transitions, draws, noise_of(config), seed)
    else:
        with blaming(run, agent.when):
            data = play_transitions(config, transitions, draws, seed, place)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        bonus, rate = agent.make_bonus(fresh), config.bonus_learning_rate
        result = probe_bonus(bonus, world, data, pair_visits, config.noise, rate)
    about = {"run": str(run), "steps": agent.steps, "bonus": config.bonus, "fresh": fresh}
    write_json(run / "probe.json", {**about, **asdict(result)})
    picture = run / "probe.png"
    plot_probe(result, rewards_of(bonus, data, 0), pair_visits, world, data, picture)
    return result, picture
