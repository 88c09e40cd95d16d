"""What an agent sees of a Gymnasium environment: an image, or a vector."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ssedb.errors import Blamed, ConfigError

SMALLEST_IMAGE = 32
"""Height and width from which an array is an image; a smaller one holds codes, not a picture."""
NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Seen(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that observes an image, uint8, or a vector, float32 [D].

    A uint8 array [H, W], [H, W, 1] or [H, W, 3] with sides of 32 or more is an image. All other
    numbers are a vector: arrays are flattened, and what is chosen from n is one-hot. Of a
    dictionary the agent sees the only image, or if there is none all numbers as one vector, or the
    key that is given.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], key: str = "") -> None:
        """Wrap an environment.

        Raises:
            ConfigError: if there is nothing that the agent can see.
        """
        super().__init__(env)
        self._key, self._space = _chosen(env.observation_space, key)
        self.vectors = not _is_image(self._space)
        self.shape = (spaces.flatdim(self._space),) if self.vectors else self._space.shape or ()
        if 0 in self.shape:
            raise ConfigError(f"observations are {_text(self._space)}, without a number to see")
        self.dtype = np.dtype(np.float32 if self.vectors else np.uint8)
        self.observation_space = (
            spaces.Box(-np.inf, np.inf, self.shape, np.float32) if self.vectors else self._space
        )

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode; return what is seen of the first observation."""
        observation, info = self.env.reset(**kwargs)
        return self.observation(observation, "reset"), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Act; return what the environment does, and what is seen of its observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation(observation, "step"), reward, terminated, truncated, info

    def observation(self, observation: Any, method: str) -> np.ndarray:
        """Return what is seen of an observation.

        Args:
            observation: as the environment gave it.
            method: of the environment that gave it, for errors.

        Raises:
            Blamed: if it has another shape than the environment's space, or an image is no uint8.
        """
        seen = observation[self._key] if self._key else observation
        given = np.asarray(spaces.flatten(self._space, seen) if self.vectors else seen)
        floats = not self.vectors and given.dtype.kind == "f"  # of 0 to 1, perhaps: all black
        if given.shape != self.shape or floats:
            what = f"an image of {given.dtype}" if floats else "an observation"
            own = f"{list(self.shape)} of {self.dtype}" if floats else list(self.shape)
            raise Blamed(
                f"{type(self.unwrapped).__name__}.{method} gave {what} of shape "
                f"{list(given.shape)}, and its observation_space has {own}",
                "".join(traceback.format_stack()),
            )
        return given.astype(self.dtype, copy=False)


def _chosen(space: spaces.Space[Any], key: str) -> tuple[str, spaces.Space[Any]]:
    """Return the key of what is seen, empty for all of the observation, and its space."""
    names = entries_seen(space, key, _is_image, "--env-kwargs obs_key")
    if not isinstance(space, spaces.Dict):
        return "", _require_seen(space)
    if len(names) == 1:
        return names[0], _require_seen(space[names[0]])
    return "", spaces.Dict({name: _require_seen(space[name]) for name in names})


def entries_seen(
    space: spaces.Space[Any],
    key: str,
    is_image: Callable[[spaces.Space[Any]], bool],
    setting: str,
) -> list[str]:
    """Return the names of the entries that are seen of a dictionary; none if it is no dictionary.

    They are the key that is given, or the only image, or all numbers.

    Args:
        space: of observations.
        key: the entry to see; empty if none is chosen.
        is_image: tells whether the observations of a space are images.
        setting: name of the setting that chooses the key, for errors.
    """
    if not isinstance(space, spaces.Dict):
        if key:
            raise ConfigError(f"obs_key={key!r}: observations are {_text(space)}; leave it out")
        return []
    if key:
        if key not in space.spaces:
            raise ConfigError(f"obs_key={key!r}: use one of {', '.join(space)}")
        return [key]
    images = [name for name, part in space.items() if is_image(part)]
    if len(images) > 1:
        raise ConfigError(
            f"observations hold several images ({', '.join(images)}); "
            f"use {setting}={images[0]}, or another"
        )
    names = images or [name for name, part in space.items() if isinstance(part, NUMBERS)]
    if not names:
        raise ConfigError(f"observations are {_text(space)}, without an image or a number")
    return names


def _is_image(space: spaces.Space[Any]) -> bool:
    shape = space.shape or ()
    kind = len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3))
    return kind and space.dtype == np.uint8 and is_large(shape)


def is_large(shape: tuple[int, ...]) -> bool:
    """Tell whether [H, W], [H, W, C], [C, H, W] or stacks of these have the sides of images."""
    return len(shape) >= 2 and sorted(shape[-3:])[-2] >= SMALLEST_IMAGE


def _require_seen(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a space that the agent can see; raise ConfigError for another."""
    large = isinstance(space, spaces.Box) and is_large(space.shape)
    if not isinstance(space, NUMBERS) or (large and not _is_image(space)):
        raise ConfigError(
            f"observations are {_text(space)}; ssedb needs uint8 images [H, W], [H, W, 1] or "
            "[H, W, 3], or vectors; change them by a wrapper"
        )
    return space


def _text(space: spaces.Space[Any]) -> str:
    return " ".join(str(space).split())
