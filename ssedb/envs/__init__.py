"""Environments: batched, on the learner's device, with or without noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ssedb.envs.noisy import NoisyEnv


def make_env(
    env: str,
    num_envs: int,
    *,
    noise: str = "none",
    strength: float = 1.0,
    seed: int = 0,
    device: str = "cpu",
    fidelity: str = "paper",
    max_episode_steps: int = 4500,
    noop_max: int = 30,
    env_kwargs: Mapping[str, Any] | None = None,
    env_workers: int | Literal["auto"] = "auto",
    **readings: Any,
) -> NoisyEnv:
    """`num_envs` copies of an Atari game (any spelling), of Rooms or of a Gymnasium id, seen through a noise.

    `env_kwargs` are arguments for gymnasium.make. `env_workers` is the number of processes that step Gymnasium environments,
    0 for this process alone; auto measures what is faster. The frames are the same either way.
    `readings` may override what the fidelity implies: sticky="step" or "frame", pixel_noise="add" or "zeros",
    box_noise="fill" or "wrap".
    """
    import math
    import warnings

    import numpy as np

    from ssedb.config import FIDELITIES
    from ssedb.envs.base import Env
    from ssedb.envs.names import (
        NOISES,
        atari_games,
        canonical_env,
        check_env_kwargs,
        dropped_sticky_actions,
        rooms_world,
    )
    from ssedb.envs.noise import STICKY_PROBABILITY
    from ssedb.envs.noisy import NoisyEnv, Observer
    from ssedb.errors import ConfigError, Note

    if noise not in NOISES:
        raise ConfigError(f"noise={noise!r}: use one of {', '.join(NOISES)}")
    if not isinstance(num_envs, int) or num_envs < 1:
        raise ConfigError(f"num_envs={num_envs!r}: must be a whole number, 1 or more")
    if seed < 0:
        raise ConfigError(f"seed={seed}: must be 0 or more")
    if not 0 <= strength <= (4 if noise == "sticky" else math.inf):
        raise ConfigError(f"strength={strength}: must be 0 or more, and at most 4 for sticky noise")
    if fidelity not in FIDELITIES:
        raise ConfigError(f"fidelity={fidelity!r}: use one of {', '.join(FIDELITIES)}")
    choices = {key: FIDELITIES[fidelity][key] for key in ("sticky", "pixel_noise", "box_noise")}
    if unknown := sorted(set(readings) - set(choices)):
        raise ConfigError(f"make_env has no setting {unknown[0]!r}; it has {', '.join(choices)}")
    choices.update(readings)
    for key, words in {
        "sticky": ("step", "frame"),
        "pixel_noise": ("add", "zeros"),
        "box_noise": ("fill", "wrap"),
    }.items():
        if choices[key] not in words:
            raise ConfigError(f"{key}={choices[key]!r}: use one of {', '.join(words)}")
    env_seed, noise_seed = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    by_frame = noise == "sticky" and choices["sticky"] == "frame"
    name = canonical_env(env)
    check_env_kwargs(env, env_kwargs or {})
    if note := dropped_sticky_actions(env, noise):
        warnings.warn(note, Note, stacklevel=2)
    if by_frame and name not in atari_games():
        raise ConfigError(
            f"sticky='frame' needs an Atari emulator and {name!r} has none; use sticky='step'"
        )
    source: Env
    if name in atari_games():
        from ssedb.envs.atari import AtariEnv

        raw = Observer.wants_raw(noise, choices["pixel_noise"], choices["box_noise"])
        source = AtariEnv(
            name,
            num_envs,
            seed=env_seed,
            device=device,
            raw=raw,
            frame_sticky=strength * STICKY_PROBABILITY if by_frame else 0.0,
            noop_max=0 if by_frame else noop_max,
            max_steps=max_episode_steps,
        )
    elif world := rooms_world(name):
        from ssedb.envs.rooms import RoomsEnv

        size, layout_seed = world
        source = RoomsEnv(
            num_envs, size, layout_seed=layout_seed, device=device, max_steps=max_episode_steps
        )
    else:
        from ssedb.envs.gymnasium import GymnasiumEnv

        source = GymnasiumEnv(
            name,
            num_envs,
            seed=env_seed,
            device=device,
            max_steps=max_episode_steps,
            kwargs=env_kwargs,
            workers=env_workers,
        )
    return NoisyEnv(
        source,
        "none" if by_frame else noise,
        strength=strength,
        pixel=choices["pixel_noise"],
        box=choices["box_noise"],
        seed=noise_seed,
    )
