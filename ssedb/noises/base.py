"""The contract of a noise: pure functions of a batch and a generator, with a dial."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ssedb.actions import Box, Choices, NumActions, action_space
from ssedb.errors import ConfigError

Memory = dict[str, Tensor]
"""State of a noise between steps: tensors with a row for each environment."""


@dataclass(frozen=True)
class Noise:
    """Disturbance of frames, of actions, or of both; this base class disturbs nothing.

    A subclass has a file of its own in this folder, which assigns it to `NOISE`. `make_noise` calls
    `cls(strength, variant)`. A subclass overrides what it needs of `begin`, `disturb_actions`,
    `advance` and `disturb_frames`. These methods change none of their arguments, draw only from the
    generator argument, and never mix rows: row i of a result depends on row i of the arguments and
    on the draws. The device is that of the arguments and of the generator.

    Attributes:
        strength: the dial. 0 changes nothing, 1 is the usual.
        variant: one of `variants`; the first of them unless given.
    """

    strength: float = 1.0
    variant: str = ""

    variants: ClassVar[tuple[str, ...]] = ()
    """The variants there are: the paper's first, then that of the released code."""
    disturbs: ClassVar[Literal["images", "vectors"]] = "images"
    """Kind of frames that a noise on frames needs."""
    max_strength: ClassVar[float] = math.inf
    capturable: ClassVar[bool] = True
    """Whether a CUDA graph may hold the noise: no shapes that depend on data, no waiting for the
    device, no Python state that changes from call to call."""

    def __init_subclass__(cls) -> None:
        if isinstance(cls.variants, str):
            raise TypeError(f"{cls.__name__}.variants is a text; write a tuple of names")

    def __post_init__(self) -> None:
        self.require_strength(self.strength)
        self.require_variant(self.variant)
        object.__setattr__(self, "variant", self.variant or next(iter(self.variants), ""))

    @classmethod
    def require_strength(cls, strength: float, name: str = "strength") -> None:
        """Raise ConfigError for a strength outside of 0 to `max_strength`."""
        if not 0 <= strength <= cls.max_strength:
            most = "" if cls.max_strength == math.inf else f" and at most {cls.max_strength:g}"
            raise ConfigError(f"{name}={strength}: must be 0 or more{most} for {cls.__name__}")

    @classmethod
    def require_variant(cls, variant: str) -> None:
        """Raise ConfigError for a variant that is none of `variants`."""
        if variant and variant not in cls.variants:
            own = f"the variants {', '.join(cls.variants)}" if cls.variants else "no variants"
            remedy = "use one of them" if cls.variants else "leave it out"
            raise ConfigError(f"noise_variant={variant!r}: {cls.__name__} has {own}; {remedy}")

    @classmethod
    def changes_actions(cls) -> bool:
        """Tell whether the noise disturbs actions."""
        return cls.disturb_actions is not Noise.disturb_actions

    @classmethod
    def changes_frames(cls) -> bool:
        """Tell whether the noise disturbs frames."""
        return cls.disturb_frames is not Noise.disturb_frames

    @classmethod
    def fits(cls, seen: Literal["images", "vectors"]) -> bool:
        """Tell whether the noise takes such frames; one that leaves frames alone takes any."""
        return cls.disturbs == seen or not cls.changes_frames()

    @property
    def raw(self) -> bool:
        """Whether frames are disturbed as the source makes them, before they are gray 84x84."""
        return False

    @property
    def frame_repeat(self) -> float | None:
        """Probability with which the emulator itself repeats actions; None leaves it as it is."""
        return None

    def begin(self, num_envs: int, num_actions: NumActions, generator: torch.Generator) -> Memory:
        """Return the memory when episodes begin everywhere.

        Args:
            num_envs: N, rows of each tensor.
            num_actions: the number of discrete actions, or the action space.
            generator: the only source of randomness.
        """
        return {}

    def disturb_actions(
        self, actions: Tensor, memory: Memory, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        """Return the actions to execute, and a mask of replaced ones.

        Args:
            actions: int64 [N], or as the action space has them, those that the agent has chosen.
            memory: what `begin` or `advance` has returned last.
            generator: the only source of randomness.

        Returns:
            The actions, and a mask, bool [N], or None if no action ever is replaced.
        """
        return actions, None

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        """Return the memory after a step.

        Args:
            memory: the memory before.
            actions: those that were executed.
            dones: bool [N], where an episode has ended (and the next has begun).
            generator: the only source of randomness.
        """
        return memory

    def disturb_frames(
        self,
        frames: Tensor,
        memory: Memory,
        generator: torch.Generator,
        want_mask: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the noisy frames, and a mask of changed pixels.

        Args:
            frames: uint8 [N, H, W] or [N, H, W, 3]; float32 [N, D] if it disturbs vectors.
            memory: what `begin` or `advance` has returned last.
            generator: the only source of randomness.
            want_mask: whether to return the mask; training does not.

        Returns:
            The noisy frames, and a mask, bool, or None; both are shaped like the frames, but
            vectors may get further dimensions. What is outside of the mask is unchanged.
        """
        return frames, torch.zeros_like(frames, dtype=torch.bool) if want_mask else None


def last_action(num_envs: int, num_actions: NumActions, device: torch.device) -> Tensor:
    """Return what `takes_last_action` compares actions with, [N].

    The last action is the last discrete one, the last option of the last of several choices, or
    the upper half of the last dimension of a vector.
    """
    space = action_space(num_actions)
    if isinstance(space, Box):
        return space.scale(device)[0][-1].repeat(num_envs)
    assert isinstance(space, Choices)
    return torch.full((num_envs,), space.sizes[-1] - 1, device=device)


def takes_last_action(actions: Tensor, last: Tensor) -> Tensor:
    """Return where the last action is taken, bool [N]."""
    chosen = actions if actions.ndim == 1 else actions[:, -1]
    # The upper half is above the middle, as in `Box.code`.
    return chosen > last if chosen.is_floating_point() else chosen == last


def with_channels(light: Tensor, frames: Tensor) -> Tensor:
    """Return light [N, H, W] in a shape that broadcasts to frames, gray or in colour."""
    return light if frames.ndim == 3 else light[..., None]
