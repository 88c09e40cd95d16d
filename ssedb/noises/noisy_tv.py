"""Noisy TV: noise that the agent's actions change."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.noises.base import Memory, Noise, last_action, takes_last_action, with_channels


class NoisyTV(Noise):
    """Noise in a corner, which changes whenever the agent takes the last action.

    The screen covers the lower right of the frame, from strength 1 on entirely.
    """

    side: ClassVar[int] = 28
    """Height and width of the screen: a third of the agent's frame, and at most that of any."""

    def begin(self, num_envs: int, num_actions: NumActions, generator: torch.Generator) -> Memory:
        button = last_action(num_envs, num_actions, generator.device)
        return {"screen": self._screens(num_envs, generator), "button": button}

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        pressed = takes_last_action(actions, memory["button"])[:, None, None]
        fresh = self._screens(len(actions), generator)
        return {**memory, "screen": torch.where(pressed, fresh, memory["screen"])}

    def _screens(self, num_envs: int, generator: torch.Generator) -> Tensor:
        shape, device = (num_envs, self.side, self.side), generator.device
        return torch.randint(256, shape, generator=generator, device=device, dtype=torch.uint8)

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        side = min(self.side, frames.shape[1] // 3)
        corner = (slice(None), slice(-side, None), slice(-side, None))
        screen = with_channels(memory["screen"][:, :side, :side], frames).float()
        noisy = frames.clone()
        below = noisy[corner]
        below.copy_((below + min(self.strength, 1.0) * (screen - below)).clamp_(0, 255))
        if not want_mask:
            return noisy, None
        mask = torch.zeros_like(frames, dtype=torch.bool)
        mask[corner] = True
        return noisy, mask


NOISE = NoisyTV
