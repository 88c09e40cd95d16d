"""Clouds: noise that moves slowly."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.noises.base import Memory, Noise, with_channels


class Clouds(Noise):
    """Bright blobs that drift over the picture in Brownian motion, round the edges."""

    count: ClassVar[int] = 6
    step: ClassVar[float] = 0.03
    """Standard deviation of a cloud's move, as a share of the height and of the width."""
    radius: ClassVar[float] = 0.08
    brightness: ClassVar[float] = 160.0

    def begin(self, num_envs: int, num_actions: NumActions, generator: torch.Generator) -> Memory:
        shape, device = (num_envs, self.count, 2), generator.device
        return {"clouds": torch.rand(shape, generator=generator, device=device)}

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        places = memory["clouds"]
        move = torch.randn(places.shape, generator=generator, device=places.device)
        return {"clouds": (places + self.step * move) % 1}

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        light = self.strength * self.brightness * self._light(memory["clouds"], *frames.shape[1:3])
        noisy = (frames + with_channels(light, frames)).clamp_(0, 255).to(torch.uint8)
        return noisy, noisy != frames if want_mask else None

    def _light(self, places: Tensor, height: int, width: int) -> Tensor:
        """Return the sum of Gaussian blobs at places [N, clouds, 2], [N, height, width]."""

        def fade(size: int, place: Tensor) -> Tensor:  # [N, clouds, size]
            distance = (torch.arange(size, device=place.device) / size - place[..., None]).abs()
            distance = torch.minimum(distance, 1 - distance)
            return torch.exp(-0.5 * (distance / self.radius).square())

        down, across = fade(height, places[..., 0]), fade(width, places[..., 1])
        light = down.new_zeros(len(places), height, width)
        for cloud in range(self.count):  # no matrix product, which a GPU may compute in TF32
            light.addcmul_(down[:, cloud, :, None], across[:, cloud, None, :])
        return light


NOISE = Clouds
