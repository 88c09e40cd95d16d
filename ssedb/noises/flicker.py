"""Flicker: a backdrop that never comes to rest."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.noises.base import Memory, Noise, with_channels


class Flicker(Noise):
    """Backdrop of 4x4 large fields, brighter or darker by N(0, 60) at every step."""

    grid: ClassVar[int] = 4
    std: ClassVar[float] = 60.0

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        (n, height, width), device = frames.shape[:3], frames.device
        fields = torch.randn(n, self.grid, self.grid, generator=generator, device=device)
        row = torch.arange(height, device=device) * self.grid // height
        column = torch.arange(width, device=device) * self.grid // width
        light = self.strength * self.std * fields[:, row][:, :, column]  # [N, H, W]
        noisy = (frames + with_channels(light, frames)).clamp_(0, 255).to(torch.uint8)
        return noisy, torch.ones_like(frames, dtype=torch.bool) if want_mask else None


NOISE = Flicker
