"""Environments: batched, on the learner's device, with or without noise."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ssedb.envs.base import Env
    from ssedb.envs.noisy import NoisyEnv
    from ssedb.noises.base import Noise


def make_env(
    env: str,
    num_envs: int,
    *,
    noise: str = "none",
    strength: float = 1.0,
    noise_variant: str = "",
    seed: int = 0,
    device: str = "cpu",
    fidelity: str = "paper",
    max_episode_steps: int = 4500,
    noop_max: int = 30,
    env_kwargs: Mapping[str, Any] | None = None,
    env_workers: int | Literal["auto"] = "auto",
) -> NoisyEnv:
    """Make `num_envs` copies of an environment, seen through a noise.

    Args:
        env: an Atari game (any spelling), rooms (-tiny, -small, -large), or a Gymnasium id.
        num_envs: copies stepped in parallel.
        noise: a name of `ssedb list noises`, or package.module:Class.
        strength: of the noise; 0 is none, 1 the paper's.
        noise_variant: variant of the noise; by default the fidelity's.
        seed: seed of environments and noise.
        device: where the frames are returned.
        fidelity: whose variant of the noise: paper, released or ours.
        max_episode_steps: steps after which an episode is cut.
        noop_max: most no-ops before an Atari episode.
        env_kwargs: arguments for gymnasium.make.
        env_workers: processes that step Gymnasium environments, 0 for this process alone; auto
            measures what is faster. The frames are the same either way.
    """
    import warnings

    import numpy as np

    from ssedb.envs.names import canonical_env, dropped_sticky_actions, require_env_kwargs
    from ssedb.envs.noisy import NoisyEnv
    from ssedb.errors import ConfigError, Note
    from ssedb.noises import make_noise

    made = make_noise(noise, strength, noise_variant, fidelity=fidelity)
    if not isinstance(num_envs, Integral) or isinstance(num_envs, bool) or num_envs < 1:
        raise ConfigError(f"num_envs={num_envs!r}: must be a whole number, 1 or more")
    num_envs = int(num_envs)
    if seed < 0:
        raise ConfigError(f"seed={seed}: must be 0 or more")
    name = canonical_env(env)
    require_env_kwargs(env, env_kwargs or {})
    if note := dropped_sticky_actions(env, noise):
        warnings.warn(note, Note, stacklevel=2)
    env_seed, noise_seed = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    source = _source(
        name,
        num_envs,
        made,
        seed=env_seed,
        device=device,
        max_steps=max_episode_steps,
        noop_max=noop_max,
        kwargs=env_kwargs,
        workers=env_workers,
    )
    return NoisyEnv(source, made, seed=noise_seed)


def _source(
    name: str,
    num_envs: int,
    noise: Noise,
    *,
    seed: int,
    device: str,
    max_steps: int,
    noop_max: int,
    kwargs: Mapping[str, Any] | None,
    workers: int | Literal["auto"],
) -> Env:
    """Make the environments behind the noise."""
    from ssedb.envs.names import atari_games, rooms_world
    from ssedb.errors import ConfigError

    by_frame = noise.frame_repeat is not None
    if name in atari_games():
        from ssedb.envs.atari import AtariEnv

        return AtariEnv(
            name,
            num_envs,
            seed=seed,
            device=device,
            raw=noise.raw,
            frame_sticky=noise.frame_repeat or 0.0,
            noop_max=0 if by_frame else noop_max,
            max_steps=max_steps,
        )
    if by_frame:
        what = f"noise_variant={noise.variant!r}" if noise.variants else type(noise).__name__
        others = [f"noise_variant={v!r}" for v in noise.variants if v != noise.variant]
        raise ConfigError(
            f"{what} needs an Atari emulator and {name!r} has none; "
            f"use {' or '.join(others) or 'another noise'}"
        )
    if world := rooms_world(name):
        from ssedb.envs.rooms.env import RoomsEnv

        size, layout_seed = world
        return RoomsEnv(num_envs, size, layout_seed=layout_seed, device=device, max_steps=max_steps)
    from ssedb.envs.gymnasium import GymnasiumEnv

    return GymnasiumEnv(
        name,
        num_envs,
        seed=seed,
        device=device,
        max_steps=max_steps,
        kwargs=kwargs,
        workers=workers,
    )
