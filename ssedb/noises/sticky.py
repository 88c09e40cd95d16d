"""Sticky actions: the paper's noise on actions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.actions import NumActions, action_space
from ssedb.noises.base import Memory, Noise


class Sticky(Noise):
    """Repetition of the previous action with probability 0.25.

    The variant `step` decides at every step of the agent, and repeats the action executed before;
    the first action of an episode has none before it. `frame` leaves it to the Atari emulator,
    which decides at every frame.
    """

    variants = ("step", "frame")
    probability: ClassVar[float] = 0.25
    max_strength = 4.0  # a probability of 1

    @property
    def frame_repeat(self) -> float | None:
        return self.strength * self.probability if self.variant == "frame" else None

    def begin(self, num_envs: int, num_actions: NumActions, generator: torch.Generator) -> Memory:
        space = action_space(num_actions)
        shape = (num_envs, *space.shape)
        return {"previous": _none(torch.zeros(shape, dtype=space.dtype, device=generator.device))}

    def disturb_actions(
        self, actions: Tensor, memory: Memory, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        if self.variant == "frame":
            return actions, None
        draw = torch.rand(len(actions), generator=generator, device=actions.device)
        stuck = (draw < self.strength * self.probability) & _known(memory["previous"])
        return torch.where(_like(stuck, actions), memory["previous"], actions), stuck

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        return {"previous": torch.where(_like(dones, actions), _none(actions), actions)}


def _none(actions: Tensor) -> Tensor:
    """Return what stands for no action: -1, or NaN where any number may be an action."""
    return torch.full_like(actions, torch.nan if actions.is_floating_point() else -1)


def _known(previous: Tensor) -> Tensor:
    """Return where there is a previous action, bool [N]."""
    known = ~previous.isnan() if previous.is_floating_point() else previous >= 0
    return known if known.ndim == 1 else known.all(-1)


def _like(rows: Tensor, actions: Tensor) -> Tensor:
    """Return flags [N] as they broadcast to actions [N] or [N, D]."""
    return rows if actions.ndim == 1 else rows[:, None]


NOISE = Sticky
