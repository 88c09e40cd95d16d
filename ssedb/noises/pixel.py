"""Pixel noise: the paper's other noise on frames."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.noises.base import Memory, Noise


class Pixel(Noise):
    """Gaussian noise on the pixels, drawn afresh every step.

    The variant `add` adds N(0, 80) to every pixel. `zeros` puts max(N(0, 80), 0) modulo 256 where
    the raw frame is exactly 0: the release casts to uint8, which wraps, so that 257 becomes 1.
    """

    variants = ("add", "zeros")
    std: ClassVar[float] = 80.0

    @property
    def raw(self) -> bool:
        return self.variant == "zeros"

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        noise = torch.randn(frames.shape, generator=generator, device=frames.device)
        noise.mul_(self.strength * self.std)
        if self.variant == "zeros":
            zero = frames == 0
            bright = noise.clamp_(min=0).remainder_(256).to(torch.uint8)
            return torch.where(zero, bright, frames), zero if want_mask else None
        noisy = noise.add_(frames).clamp_(0, 255).to(torch.uint8)
        return noisy, torch.ones_like(frames, dtype=torch.bool) if want_mask else None


NOISE = Pixel
