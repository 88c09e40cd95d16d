"""The probe: a bonus measured on fixed transitions under many draws of the noise."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ssedb.analysis import measures
from ssedb.analysis.training import make_adam, train_on_rollout
from ssedb.bonuses.base import Bonus
from ssedb.config import TrainConfig, under_noise
from ssedb.envs.names import rooms_world
from ssedb.envs.rooms.world import World
from ssedb.errors import ConfigError
from ssedb.noises import noise_class, noise_of
from ssedb.runs.agent import load
from ssedb.runs.blame import blaming
from ssedb.transitions import (
    Transitions,
    collect_transitions,
    draw_transitions,
    experience,
    rewards_and_features,
    rewards_of,
)

FALL_BATCH = 128

FALL_AT = (0, 1, 2, 5, 10, 20, 50)
"""Gradient steps after which the bonus of the trained transitions is measured."""


@dataclass(frozen=True)
class Probe:
    """Measures of a bonus.

    A measure is None if the bonus has no representation, the run no visit counts, or the
    environment no true states.
    """

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


def probe_bonus(
    bonus: Bonus,
    world: World | None,
    data: Transitions,
    pair_visits: Tensor | None,
    noise: str,
    learning_rate: float,
    adam_eps: float,
) -> Probe:
    """Compute all measures of one bonus.

    Args:
        bonus: the bonus.
        world: the world of Rooms, where the transitions are from there.
        data: the transitions.
        pair_visits: N(s, a) of the run that trained the bonus, int64 [states, actions].
        noise: name of the noise.
        learning_rate: of the gradient steps on the same transitions.
        adam_eps: of these steps.
    """
    draws = data.noisy.shape[1]
    rewards, features = rewards_and_features(bonus, data)
    # [M, 16]: how the noise changed the newest frame, coarsely
    difference = data.noisy[-2, 0].float() - data.clean[-2].float()
    fields = adaptive_avg_pool2d(difference[:, None], 4).flatten(1)
    counted = None if pair_visits is None else count_correlation(rewards, data, pair_visits)
    fall = {draw: _fall(bonus, data, draw, learning_rate, adam_eps) for draw in (None, draws)}
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


def _place_told(
    features: Tensor | None, world: World | None, data: Transitions
) -> dict[str, float | None]:
    """Measure how well a linear probe predicts the agent's room and cell from the features."""
    if features is None or world is None or data.states is None:
        return {"room_accuracy": None, "place_explained": None}
    cell = data.states // world.scenes_per_cell
    place = torch.tensor(world.cells, device=world.device)[cell]
    return {
        "room_accuracy": measures.probe_accuracy(features[0], world.room_of_cell[cell]),
        "place_explained": measures.explained_share(features[0], place),
    }


def count_correlation(rewards: Tensor, data: Transitions, pair_visits: Tensor) -> float:
    """Return the rank correlation of the bonus with the count bonus 1 / sqrt(N(s, a) + 1).

    Args:
        rewards: [K, M], averaged over the K draws.
        data: the transitions.
        pair_visits: N(s, a), int64 [states, actions].
    """
    visits = pair_visits[data.states, data.actions]
    return measures.rank_correlation(rewards.mean(0), (visits + 1.0).rsqrt())


def _fall(
    bonus: Bonus, data: Transitions, draws: int | None, learning_rate: float, adam_eps: float
) -> tuple[float, ...]:
    """Return the mean bonus of a few transitions along training on them.

    The transitions are without noise, or under another of `draws` draws in each step.
    """
    twin = copy.deepcopy(bonus)
    adam = make_adam(twin, learning_rate, adam_eps)
    found = []
    for step in range(FALL_AT[-1] + 1):
        batch = experience(twin, data, None if draws is None else step % draws, slice(FALL_BATCH))
        if step in FALL_AT:
            found.append(float(twin.reward(*batch).mean()))
        train_on_rollout(twin, batch, adam)
    return tuple(found)


def require_probe_settings(config: TrainConfig, transitions: int, draws: int) -> None:
    """Raise ConfigError if the probe cannot run with these settings.

    On Rooms there is something to measure without noise on frames: the correlation with counts.
    """
    noise = noise_class(config.noise)
    on_actions = noise.changes_actions() and not noise.changes_frames()
    if on_actions and rooms_world(config.env) is None:
        other = "name another with --noise, such as random-box"
        raise ConfigError(f"noise={config.noise}: the probe draws noise over pictures; {other}")
    for name, value, least in (("transitions", transitions, 128), ("draws", draws, 2)):
        if value < least:
            raise ConfigError(f"{name}={value}: must be {least} or more")


def probe_run(
    run: Path,
    *,
    fresh: bool = False,
    noise: str | None = None,
    transitions: int = 1024,
    draws: int = 8,
    seed: int = 0,
    device: str = "auto",
) -> tuple[Probe, Path]:
    """Probe the bonus of a run, and write `probe.json` and `probe.png` into its folder.

    Args:
        run: folder of the run.
        fresh: whether to probe an untrained bonus of the same kind.
        noise: another noise than the run's.
        transitions: M, how many.
        draws: K, how many draws of the noise.
        seed: of all that is drawn.
        device: auto, cpu, cuda or cuda:N.

    Returns:
        The measures and the path of the figure.
    """
    from ssedb.analysis.plots import plot_probe
    from ssedb.runs.files import write_json
    from ssedb.runs.folder import saved_config

    config = under_noise(saved_config(run), noise)
    require_probe_settings(config, transitions, draws)
    agent = load(run, device)
    agent.require_pictures()
    place, state = agent.device, agent.state
    world = pair_visits = None
    if named := rooms_world(config.env):
        world, counts = World(*named, place), state["env"]["env"].get("visit_counts")
        if counts is None:
            raise ConfigError(f"{run} holds no visit counts; another version of ssedb wrote it")
        pair_visits = counts["pair_visits"]
        seen = counts["visits"] > 0
    with blaming(run, agent.when, config=config):
        if world is not None:
            data = draw_transitions(world, seen, transitions, draws, noise_of(config), seed)
        else:
            data = collect_transitions(config, transitions, draws, seed, place)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            bonus, how = agent.make_bonus(fresh), (config.bonus_learning_rate, config.adam_eps)
            result = probe_bonus(bonus, world, data, pair_visits, config.noise_label, *how)
    about = {"run": str(run), "steps": agent.steps, "bonus": config.bonus, "fresh": fresh}
    picture = run / "probe.png"
    when = "untrained" if fresh else f"step {agent.steps:,}"
    title = (
        f"{run.resolve().name}: {config.bonus} on {config.env}, noise {config.noise_label}, {when}"
    )
    plot_probe(result, rewards_of(bonus, data, 0), pair_visits, world, data, picture, title)
    # Last: it tells a sweep that the run is probed.
    write_json(run / "probe.json", {**about, **asdict(result)})
    return result, picture
