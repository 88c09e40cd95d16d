"""Spaces of Gymnasium: from what an environment gives and takes to what a bonus takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import Env, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from ssedb.actions import Choices, NumActions, action_space
from ssedb.envs.frames import LUMA, SIDE, to_agent_frames
from ssedb.envs.seen import is_large
from ssedb.errors import ConfigError

LEAST_SIDE = 36
"""Height and width below which the encoder's convolutions do not fit."""
ROUNDING = 1e-3
"""Distance from 0 and 1 within which a one-hot number counts as such; half floats round."""


def spaces_of(envs: Any) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the spaces of one environment.

    Args:
        envs: environments of Gymnasium or Stable-Baselines3, or a pair (observations, actions).
    """
    if isinstance(envs, VectorEnv):
        return envs.single_observation_space, envs.single_action_space
    if isinstance(envs, Env) or hasattr(envs, "observation_space"):
        return envs.observation_space, envs.action_space
    pair = isinstance(envs, tuple | list) and len(envs) == 2
    if pair and all(isinstance(x, spaces.Space) for x in envs):
        return envs[0], envs[1]
    raise ConfigError(
        f"envs={envs!r}: give environments, or their (observation_space, action_space)"
    )


def resets_in_next_step(envs: Any) -> bool | None:
    """Tell whether environments take a step of its own to begin an episode, as Gymnasium's may.

    None for a pair of spaces, which does not tell.
    """
    if isinstance(envs, VectorEnv):
        return bool(envs.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP)
    return None if isinstance(envs, tuple | list) else False


def make_observations(space: spaces.Space[Any], rgb: bool | None = None) -> Images | Vectors:
    """Find out how a bonus takes the observations of a space.

    Args:
        space: of single observations. Bytes [H, W], and bytes or bounded floats [H, W, C] or
            [C, H, W] are images if their sides are 32 or more, and so are stacks of such [F, ...].
            Smaller ones are codes of a grid: vectors, as are other boxes of one or two dimensions,
            numbers and bits.
        rgb: whether the channels of images are colours; where they come in threes, if None.
    """
    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Box) and is_image(space):
        bounds = float(space.low.min()), float(space.high.max())
        return Images(shape, rgb, (0.0, 255.0) if space.dtype == np.uint8 else bounds)
    small = len(shape) <= 2 or (len(shape) <= 4 and not is_large(shape))
    flat = isinstance(space, spaces.Box) and small
    if flat or isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return Vectors(space)
    raise ConfigError(
        f"observations of {' '.join(str(space).split())}: a bonus takes images or vectors; "
        "wrap the environments so that they give such"
    )


def is_image(space: spaces.Space[Any]) -> bool:
    """Tell whether the observations of a space are images: see `make_observations`."""
    shape = tuple(space.shape or ())
    if not isinstance(space, spaces.Box) or len(shape) > 4 or not is_large(shape):
        return False
    return space.dtype == np.uint8 or (len(shape[-3:]) == 3 and space.is_bounded())


class Images:
    """Images of a space as stacks of gray frames, uint8 [C, H, W], the newest frame last.

    Bonuses take channels for frames in the order of time, so every colour image becomes one gray
    frame. Images too small for the encoder, or larger than 84x84, become 84x84.

    Attributes:
        shape: of an observation as a bonus takes it.
    """

    def __init__(
        self, shape: tuple[int, ...], rgb: bool | None, bounds: tuple[float, float] = (0.0, 255.0)
    ) -> None:
        """Find out how images lie in a space.

        Args:
            shape: of an image, [H, W], [H, W, C] or [C, H, W], or of a stack of such, [F, ...].
            bounds: what is black and what is white.
            rgb: whether channels are colours, three to a frame; where they come in threes, if None.
        """
        self._stack, shape = shape[:-3], shape[-3:]
        self._given = shape
        self._bounds = bounds
        # The number of channels is the smallest: of [H, W, C] the last, of [C, H, W] the first.
        self._last = len(shape) == 3 and shape[2] < shape[0]
        channels = 1 if len(shape) == 2 else shape[2 if self._last else 0]
        sides = shape[:2] if self._last or len(shape) == 2 else shape[1:]
        self._rgb = channels % 3 == 0 if rgb is None else rgb
        if self._rgb and channels % 3:
            raise ConfigError(f"rgb=True: {channels} channels of {shape} do not come in threes")
        self._resize = min(sides) < LEAST_SIDE or max(sides) > SIDE
        frames = math.prod(self._stack) * (channels // 3 if self._rgb else channels)
        self.shape: tuple[int, ...] = (frames, *((SIDE, SIDE) if self._resize else sides))

    def __call__(self, x: Tensor, lead: tuple[int, ...]) -> Tensor:
        """Convert [*lead, *space.shape] to [*lead, C, H, W]; floats of 0 to 255 count as bytes.

        Of a space [H, W, C], images [C, H, W] are taken as well: a trainer may have turned them.
        """
        own = tuple(x.shape[len(lead) + len(self._stack) :])
        turned = self._last and own == (self._given[2], *self._given[:2])
        fits = tuple(x.shape[len(lead) :]) == (*self._stack, *own)
        if not fits or (own != self._given and not turned):
            raise _misfit(x, (*self._stack, *self._given))
        x = self._bytes(x.reshape(-1, *own))
        if len(own) == 2:
            x = x[:, None]
        elif self._last and not turned:
            x = x.permute(0, 3, 1, 2)
        if self._rgb:
            x = _gray(x)
        if self._resize:
            x = to_agent_frames(x.flatten(0, 1))
        return x.reshape(*lead, *self.shape)

    def _bytes(self, x: Tensor) -> Tensor:
        """Convert what lies within the bounds to bytes."""
        black, white = self._bounds
        if not (x.dtype == torch.uint8 or x.is_floating_point()):
            x = x.float()  # torch knows no least and no difference of bits and of uint16
        if (black, white) == (0.0, 255.0):
            if x.dtype != torch.uint8:
                _require_bytes(x)
            return x.to(torch.uint8)
        return ((x - black) * (255 / (white - black))).round().clamp(0, 255).to(torch.uint8)


def _require_bytes(x: Tensor) -> None:
    """Raise ConfigError for pixels, not uint8, that are not of 0 to 255 or were scaled to 1."""
    least, most = x.amin().item(), x.amax().item()
    scaled = x.is_floating_point() and most <= 1 and bool((x != x.round()).any())
    if scaled or least < 0 or most > 255:
        raise ConfigError(
            f"images of {least:.3g} to {most:.3g}: the space has 0 to 255; give them as the "
            "environment does, before they are scaled"
        )


def _gray(x: Tensor) -> Tensor:
    """Turn colours uint8 [B, 3 F, H, W] into gray frames uint8 [B, F, H, W]."""
    colours = x.unflatten(1, (-1, 3)).float()
    weights = torch.tensor(LUMA, device=x.device)[:, None, None]
    # A flat white image may come out a rounding error below 255.
    return ((colours * weights).sum(2) + 1e-3).clamp_(0, 255).to(torch.uint8)


class Codes:
    """Choices of a discrete space as int64 from 0, given as numbers or one-hot side by side.

    Attributes:
        sizes: how many options each choice has.
    """

    def __init__(self, space: spaces.Space[Any], sizes: tuple[int, ...], name: str) -> None:
        """Prepare for a space.

        Args:
            space: `Discrete`, `MultiDiscrete` or `MultiBinary`.
            sizes: how many options each choice has.
            name: what is chosen, for errors.
        """
        self.sizes = sizes
        self._first = torch.as_tensor(np.asarray(getattr(space, "start", 0), np.int64)).flatten()
        self._space = " ".join(str(space).split())
        self._name = name

    def fit(self, x: Tensor, lead: tuple[int, ...]) -> bool:
        """Tell whether a tensor holds the choices of [*lead]."""
        return self._one_hot(x, lead) or x.numel() == math.prod(lead) * len(self.sizes)

    def __call__(self, x: Tensor, lead: tuple[int, ...]) -> Tensor:
        """Convert to [*lead, K]; raise ConfigError for a number that is no option."""
        if not x.is_floating_point():
            x = x.long()
        if self._one_hot(x, lead):
            return self._chosen(x)
        numbers = x.reshape(*lead, len(self.sizes))
        codes = numbers.long() - self._first.to(x.device)
        beyond = (codes < 0) | (codes >= torch.tensor(self.sizes, device=x.device))
        beyond |= numbers != numbers.long()
        if beyond.any():
            worst = numbers[beyond][0].item()
            raise ConfigError(f"{self._name} {worst}: {self._space} has no such choice")
        return codes

    def _chosen(self, x: Tensor) -> Tensor:
        """Return the options that are 1 in one-hot choices; raise ConfigError for other numbers."""
        codes = torch.stack([one.argmax(-1) for one in x.split(self.sizes, -1)], -1)
        exact = Choices(self.sizes).vector(codes.flatten(0, -2)).reshape(x.shape)
        wrong = ~((x - exact).abs() <= ROUNDING).all(-1)  # NaN is wrong, too
        if wrong.any():
            row = [round(number, 3) for number in x[wrong][0].tolist()]
            raise ConfigError(
                f"{self._name} {row}: neither a choice of {self._space} nor one-hot; give the "
                "chosen numbers, or 1 for what was chosen and 0 for the rest"
            )
        return codes

    def _one_hot(self, x: Tensor, lead: tuple[int, ...]) -> bool:
        return sum(self.sizes) > len(self.sizes) and x.shape == (*lead, sum(self.sizes))


class Vectors:
    """Vectors of a space as float32 [D]; `Discrete` and `MultiDiscrete` become one-hot.

    Attributes:
        shape: of an observation as a bonus takes it.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._given = tuple(space.shape or ())
        self._codes = None
        self.shape: tuple[int, ...] = (math.prod(self._given),)
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            numbers = space.n if isinstance(space, spaces.Discrete) else space.nvec
            sizes = tuple(np.ravel(numbers).tolist())
            self._codes = Codes(space, sizes, "observation")
            self.shape = (sum(sizes),)

    def __call__(self, x: Tensor, lead: tuple[int, ...]) -> Tensor:
        """Convert [*lead, *space.shape] to [*lead, D]; a choice may be [*lead, 1] or one-hot."""
        if self._codes is not None and self._codes.fit(x, lead):
            sizes = self._codes.sizes
            codes = self._codes(x, lead).reshape(-1, len(sizes))
            return Choices(sizes).vector(codes).reshape(*lead, *self.shape)
        if x.shape != (*lead, *self._given):
            raise _misfit(x, self._given)
        return x.reshape(*lead, *self.shape).float()


def _misfit(x: Tensor, given: tuple[int, ...]) -> ConfigError:
    return ConfigError(
        f"observations of shape {list(x.shape)}: the space has {list(given)}; "
        "give [steps, envs, ...] of such"
    )


class Actions:
    """Actions of a space as a bonus takes them: choices from 0, vectors as they are.

    Attributes:
        space: what a bonus is made for; of a single choice the number of options.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        own = action_space(space)
        self.space: NumActions = int(space.n) if isinstance(space, spaces.Discrete) else own
        self._shape, self._dtype = own.shape, own.dtype
        self._codes = Codes(space, own.sizes, "action") if isinstance(own, Choices) else None

    def __call__(self, actions: Tensor, lead: tuple[int, ...]) -> Tensor:
        """Convert [*lead, *space.shape] to [*lead, ...]; a choice may be [*lead, 1] or one-hot."""
        if self._codes is not None and self._codes.fit(actions, lead):
            return self._codes(actions, lead).reshape(*lead, *self._shape)
        if actions.numel() != math.prod(lead) * math.prod(self._shape):
            raise ConfigError(
                f"actions of shape {list(actions.shape)}: there are observations of {list(lead)}"
            )
        return actions.reshape(*lead, *self._shape).to(self._dtype)
