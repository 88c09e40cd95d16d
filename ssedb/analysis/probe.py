"""Is the bonus right? Measured on Rooms, over a fixed set of transitions under many draws of the noise."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssedb import checkpoint, engine
from ssedb.analysis import measures
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.envs.noisy import Observer
from ssedb.envs.rooms import World
from ssedb.errors import ConfigError
from ssedb.rollout import STACK

CHUNK = 1024
FALL_BATCH = 128
FALL_AT = (0, 1, 2, 5, 10, 20, 50)
"""Gradient steps after which the bonus of the transitions trained on is looked at."""


@dataclass(frozen=True)
class Transitions:
    """Clean transitions and the same under K draws of a noise."""

    clean: Tensor  # uint8 [STACK + 1, M, 84, 84]: the frames of both stacks
    noisy: Tensor  # uint8 [STACK + 1, K, M, 84, 84]
    actions: Tensor  # int64 [M]
    states: Tensor  # int64 [M], the true state acted in

    def pair(self, draw: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """(obs, actions, next_obs) of one draw, or clean."""
        frames = self.clean if draw is None else self.noisy[:, draw]
        stacks = frames.transpose(0, 1)
        return stacks[:, :-1].contiguous(), self.actions, stacks[:, 1:].contiguous()


@dataclass(frozen=True)
class Probe:
    """What the probe found. None where a bonus has no representation, or a run no counts."""

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
    world: World, visited: Tensor | None, count: int, draws: int, observer: dict[str, Any], seed: int
) -> Transitions:
    """Random walks from states chosen evenly: half from all that can be reached, half from those visited, if any were."""
    generator = torch.Generator(world.device).manual_seed(seed)

    def choose(pool: Tensor, n: int) -> Tensor:
        states = torch.nonzero(pool).flatten()
        return states[torch.randint(len(states), (n,), generator=generator, device=world.device)]

    known = visited if visited is not None and visited.any() else world.reachable()
    state = world.state_of(torch.cat([choose(world.reachable(), count // 2), choose(known, count - count // 2)]))
    eyes = Observer(draws * count, world.num_actions, seed=seed, device=world.device, **observer)
    clean, noisy = [world.frames(state)], [eyes.observe(world.frames(state).repeat(draws, 1, 1))]
    never = torch.zeros(draws * count, dtype=torch.bool, device=world.device)
    for _ in range(STACK):
        ids = world.state_ids(state)
        actions = torch.randint(world.num_actions, (count,), generator=generator, device=world.device)
        state, _ = world.move(state, actions)
        eyes.advance(actions.repeat(draws), never)
        clean.append(world.frames(state))
        noisy.append(eyes.observe(clean[-1].repeat(draws, 1, 1)))
    return Transitions(torch.stack(clean), torch.stack(noisy).unflatten(1, (draws, count)), actions, ids)


def probe_bonus(
    bonus: Bonus, world: World, data: Transitions, choices: Tensor | None, noise: str, learning_rate: float
) -> Probe:
    """All measures of one bonus; `choices` is N(s, a) of the run that trained it."""
    draws = data.noisy.shape[1]
    rewards, features = rewards_and_features(bonus, data)
    counts = None if choices is None else choices[data.states, data.actions]
    cell = data.states // world.scenes_per_cell
    place = torch.tensor(world.cells, device=world.device)[cell]
    difference = (data.noisy[-2, 0].float() - data.clean[-2].float()).unflatten(1, (4, 21)).unflatten(3, (4, 21))
    fields = difference.mean((2, 4)).flatten(1)  # [M, 16]: how the noise changed the newest frame, coarsely
    fall = {draw: _fall(bonus, data, draw, learning_rate) for draw in (None, draws)}
    return Probe(
        noise=noise,
        bonus_mean=float(rewards.mean()),
        bonus_noise_share=measures.noise_share(rewards),
        count_correlation=None if counts is None else measures.rank_correlation(rewards.mean(0), (counts + 1.0).rsqrt()),
        feature_noise_share=None if features is None else measures.noise_share(features),
        room_accuracy=None if features is None else measures.probe_accuracy(features[0], world.room_of_cell[cell]),
        place_explained=None if features is None else measures.explained_share(features[0], place),
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
    return rewards, torch.stack([_in_chunks(lambda o, a, *_: bonus.features(o, a), bonus, data, k) for k in draws])


def rewards_of(bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    """The bonus [M] under one draw, or clean."""
    return _in_chunks(bonus.reward, bonus, data, draw)


def experience(bonus: Bonus, data: Transitions, draw: int | None, rows: slice) -> tuple[Any, ...]:
    """Some transitions of one draw, and their context where the bonus uses one: each is an episode of its own."""
    states = data.states[rows]
    context = Context(-2 - torch.arange(len(states), device=states.device), states)
    return (*(x[rows] for x in data.pair(draw)), *([context] if bonus.uses_context else []))


def _fall(bonus: Bonus, data: Transitions, draws: int | None, learning_rate: float) -> tuple[float, ...]:
    """The mean bonus of a few transitions as they are trained on again and again, clean or under a new draw each time."""
    twin = copy.deepcopy(bonus)
    trained = [p for p in twin.parameters() if p.requires_grad]
    adam = torch.optim.Adam(trained, lr=learning_rate) if trained else None
    found = []
    for step in range(FALL_AT[-1] + 1):
        batch = experience(twin, data, None if draws is None else step % draws, slice(FALL_BATCH))
        if step in FALL_AT:
            found.append(float(twin.reward(*batch).mean()))
        twin.take_in(*batch)
        loss, _ = twin.loss(*batch[:3])
        if adam is not None:
            adam.zero_grad()
            loss.backward()
            adam.step()
        twin.after_step()
        twin.after_rollout()
    return tuple(found)


def _in_chunks(function: Any, bonus: Bonus, data: Transitions, draw: int | None) -> Tensor:
    with torch.no_grad():
        starts = range(0, len(data.actions), CHUNK)
        return torch.cat([function(*experience(bonus, data, draw, slice(i, i + CHUNK))) for i in starts])


def check(config: TrainConfig, transitions: int, draws: int) -> None:
    """Mistakes that can be named before anything is loaded."""
    if rooms_world(config.env) is None:
        raise ConfigError(f"env={config.env}: the probe needs a world whose truth is known; train with --env rooms")
    for name, value, least in (("transitions", transitions, 128), ("draws", draws, 2)):
        if value < least:
            raise ConfigError(f"{name}={value}: must be {least} or more")


def probe_run(
    run: Path, *, fresh: bool = False, noise: str | None = None, transitions: int = 1024, draws: int = 8,
    seed: int = 0, device: str = "auto",
) -> tuple[Probe, Path]:  # fmt: skip
    """Probes the bonus of a run on Rooms (or a fresh one of its kind) and writes `probe.json` and `probe.png` there."""
    from ssedb.analysis.plots import plot_probe
    from ssedb.runlog import saved_config

    config = saved_config(run)
    check(config, transitions, draws)
    engine.tune_allocator()
    place = engine.pick_device(device)
    saved = checkpoint.load_latest(run / "checkpoints", place)
    assert saved is not None  # the command line has seen one
    state, about, complaints = saved
    for complaint in complaints:
        print(f"{complaint}; probing the one before it", file=sys.stderr)
    size, layout_seed = rooms_world(config.env) or ("", 0)
    world = World(size, layout_seed, place)
    noise = noise or config.noise
    observer = {"noise": noise, "strength": config.noise_strength, "pixel": config.pixel_noise, "box": config.box_noise}
    truth = state["env"]["env"]["truth"]
    data = draw_transitions(world, truth["visits"] > 0, transitions, draws, observer, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        bonus = make_bonus(config.bonus, (STACK, *data.clean.shape[2:]), world.num_actions, **config.bonus_options).to(place)
        if fresh:
            bonus.normalize.load_state_dict({k[10:]: v for k, v in state["bonus"].items() if k.startswith("normalize.")})
        else:
            bonus.load_state_dict(state["bonus"])
        result = probe_bonus(bonus, world, data, truth["choices"], noise, config.learning_rate)
    about = {"run": str(run), "steps": about["steps"], "bonus": config.bonus, "fresh": fresh}
    (run / "probe.json").write_text(json.dumps({**about, **asdict(result)}, indent=2) + "\n", encoding="utf-8")
    picture = run / "probe.png"
    rewards = rewards_of(bonus, data, 0)
    plot_probe(result, rewards.cpu(), truth["choices"][data.states, data.actions].cpu(), world, data, picture)
    return result, picture
