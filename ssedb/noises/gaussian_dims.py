"""Gaussian dimensions: the noise that vectors are tested with."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ssedb.noises.base import Memory, Noise


class GaussianDims(Noise):
    """Vectors get 8 further dimensions of N(0, 1), drawn afresh every step.

    The strength dials how many, not how large: observations are scaled by their std.
    """

    disturbs = "vectors"
    dims: ClassVar[int] = 8
    """Dimensions appended at strength 1."""

    @property
    def count(self) -> int:
        """Dimensions appended at this strength."""
        return math.ceil(self.strength * self.dims)

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        noise = self._drawn(len(frames), generator)
        return self._appended(frames, noise, want_mask)

    def _drawn(self, num_envs: int, generator: torch.Generator) -> Tensor:
        return torch.randn(num_envs, self.count, generator=generator, device=generator.device)

    def _appended(
        self, frames: Tensor, noise: Tensor, want_mask: bool
    ) -> tuple[Tensor, Tensor | None]:
        noisy = torch.cat([frames, noise], -1)
        if not want_mask:
            return noisy, None
        mask = torch.ones_like(noisy, dtype=torch.bool)
        mask[:, : frames.shape[-1]] = False
        return noisy, mask


NOISE = GaussianDims
