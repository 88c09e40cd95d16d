"""Sticky actions: the paper's noise on actions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.noises.base import Memory, Noise


class Sticky(Noise):
    """Repetition of the previous action with probability 0.25.

    The variant `step` decides at every step of the agent, and repeats the action executed before;
    the first action of an episode has none before it. `frame` leaves it to the Atari emulator,
    which decides at every frame.
    """

    variants = ("step", "frame")
    setting = "sticky"
    probability: ClassVar[float] = 0.25
    max_strength = 4.0  # a probability of 1

    @property
    def frame_repeat(self) -> float | None:
        return self.strength * self.probability if self.variant == "frame" else None

    def begin(self, num_envs: int, num_actions: int, generator: torch.Generator) -> Memory:
        return {"previous": torch.full((num_envs,), -1, device=generator.device)}

    def disturb_actions(
        self, actions: Tensor, memory: Memory, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | None]:
        if self.variant == "frame":
            return actions, None
        draw = torch.rand(actions.shape, generator=generator, device=actions.device)
        stuck = (draw < self.strength * self.probability) & (memory["previous"] >= 0)
        return torch.where(stuck, memory["previous"], actions), stuck

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        return {"previous": torch.where(dones, -1, actions)}


NOISE = Sticky
