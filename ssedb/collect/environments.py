"""The environments of a run, the collector that steps them, and a random agent's look at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ssedb.actions import action_space
from ssedb.collect.collector import Collector
from ssedb.collect.memory import require_memory
from ssedb.collect.pipelined import PipelinedCollector, low_priority_threads
from ssedb.collect.rollout import Rollout
from ssedb.config import TrainConfig
from ssedb.engine import require_engine
from ssedb.engine.base import Engine
from ssedb.engine.distributed import ALONE, Group
from ssedb.engine.host import pick_device, tune_allocator
from ssedb.envs import make_env
from ssedb.envs.base import Env, HostEnv
from ssedb.envs.frames import SIDE
from ssedb.envs.names import atari_games, pools_of, rooms_world
from ssedb.envs.noisy import NoisyEnv
from ssedb.envs.rooms.layout import SIZES
from ssedb.errors import TrainingError
from ssedb.normalize import RunningMoments, scale_of

OBS_NORM_ENVS = 8
"""Environments of the random agent: few, so that its steps reach deep into the episodes."""


def env_of(
    config: TrainConfig, num_envs: int, seed_key: int, device: torch.device, shard: int = 0
) -> NoisyEnv:
    """Make environments of a run.

    Args:
        config: the run's settings.
        num_envs: how many.
        seed_key: derives another seed from the run's: 0 for training, 1 for the random agent.
        device: where the learner is.
        shard: number of the pool or process; each has a seed of its own, too.
    """
    seeds = np.random.SeedSequence([config.seed, seed_key]).generate_state(shard + 1)
    return make_env(
        config.env,
        num_envs,
        noise=config.noise,
        strength=config.noise_strength,
        noise_variant=config.noise_variant,
        fidelity=config.fidelity,
        seed=int(seeds[shard]),
        device=str(device),
        max_episode_steps=config.max_episode_steps,
        noop_max=config.noop_max,
        env_kwargs=config.env_kwargs,
        env_workers=config.env_workers,
    )


def training_envs(
    config: TrainConfig, seed_key: int, device: torch.device, group: Group = ALONE
) -> list[NoisyEnv]:
    """Make the environments of this process: emulators beside a GPU in pools, others in one."""
    num_envs = config.num_envs // group.size
    pools = pools_of(config.env, num_envs) if device.type == "cuda" else 1
    shards = range(group.rank * pools, (group.rank + 1) * pools)
    if pools == 1:
        return [env_of(config, num_envs, seed_key, device, shards[0])]
    with low_priority_threads():
        return [env_of(config, num_envs // pools, seed_key, device, shard) for shard in shards]


def make_collector(
    envs: Sequence[Env],
    steps: int,
    engine: Engine,
    on_step: Callable[[int], None] = lambda t: None,
) -> Collector:
    """Make the collector of a run: pipelined where a GPU acts for emulators on the host.

    Args:
        envs: pools of environments to collect in, or one that holds all.
        steps: length of a rollout.
        engine: runs the policy.
        on_step: called with t after every step.
    """
    pools = [env for env in envs if isinstance(env, NoisyEnv) and isinstance(env.env, HostEnv)]
    if pools and engine.device.type == "cuda":
        return PipelinedCollector(pools, steps, engine, on_step)
    return Collector(envs[0], steps, engine, on_step)


def learner_device(config: TrainConfig, group: Group = ALONE) -> torch.device:
    """Choose the learner's device; raise ConfigError if no rollout can fit in its memory."""
    device = pick_device(config.device)
    require_engine(config.engine, device)
    frame = smallest_frame(config.env)
    require_memory(config.rollout_steps, config.num_envs // group.size, frame, device, group)
    if device.index is not None:
        torch.cuda.set_device(device)  # streams and events are of the current one
    if device.type == "cuda":
        # Start the driver's threads here; among the emulators' they would get a low priority.
        torch.cuda.synchronize(device)
    tune_allocator()
    return device


def smallest_frame(env: str) -> tuple[int, ...]:
    """Return the shape of the agent's frames, or the smallest one before they can be known."""
    if world := rooms_world(env):
        side = SIZES[world[0]].picture
        return side, side
    return (SIDE, SIDE) if env in atari_games() else (1,)


def look_around(
    config: TrainConfig,
    group: Group = ALONE,
    on_step: Callable[[int, int], None] = lambda done, steps: None,
) -> tuple[Tensor, Tensor]:
    """Return the mean observation and the std of what a random agent sees.

    The agent has environments of its own. Call this function before making the training
    environments: closing an environment may free what all environments of the process share.

    Args:
        config: the run's settings.
        group: the processes that share the run; the first one looks around for all.
        on_step: called with the steps done and their number when the environments are made, and
            after each step.
    """
    device = learner_device(config, group)

    def look() -> tuple[Tensor, Tensor]:
        env = env_of(config, min(OBS_NORM_ENVS, config.num_envs), seed_key=1, device=device)
        steps = config.obs_norm_steps
        on_step(0, steps)
        try:
            mean, std = random_agent_statistics(env, steps, config.seed, on_step, config.env)
        finally:
            env.close()
        return mean.cpu(), std.cpu()

    return group.from_first(look)


def random_agent_statistics(
    env: Env,
    steps: int,
    seed: int,
    on_step: Callable[[int, int], None] = lambda done, steps: None,
    name: str = "the environment",
) -> tuple[Tensor, Tensor]:
    """Return the mean observation of a random agent, and the std: ONE for all pixels.

    Args:
        env: environments to look around in.
        steps: of all environments together.
        seed: of the agent.
        on_step: called with the steps done and `steps` after each step.
        name: of the environment, for errors.

    Returns:
        The mean picture [4, H, W] and a scalar, the mean of the pixels' stds; of vectors the mean
        and the std of each dimension, both [D].

    Raises:
        TrainingError: an observation is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    frames = env.reset()
    env.stagger()
    space = action_space(env.num_actions)
    rollout = Rollout(1, env.num_envs, tuple(frames.shape[1:]), env.device, num_actions=space)
    rollout.begin(frames)
    moments = RunningMoments(rollout.obs_shape, torch.float64).to(env.device)
    for done in range(0, steps, env.num_envs):
        obs = rollout.obs(0)
        if obs.is_floating_point() and not obs.isfinite().all():
            value = obs[~obs.isfinite()][0].item()
            raise TrainingError(
                f"{name} gave a random agent an observation with {value}, no finite number of "
                "float32; mend the environment"
            )
        moments.add(obs)
        actions = space.random(env.num_envs, generator)
        rollout.advance(env.step(actions.to(env.device)))
        on_step(min(done + env.num_envs, steps), steps)
    return scale_of(moments, least_std=1e-3)
