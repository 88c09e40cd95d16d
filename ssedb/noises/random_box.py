"""Random boxes: the paper's noise on frames."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.noises.base import Memory, Noise


class RandomBox(Noise):
    """3 to 12 boxes of Gaussian noise on an 8x10 grid, drawn afresh every step.

    A box is 20x20 pixels of a raw 210x160 frame, 8x10 of an 84x84 one. The variant `fill` blends
    N(127.5, 76.5) over it, from strength 1 on entirely; `wrap` adds N(0, 76.5) modulo 256 to the
    raw frame.
    """

    variants = ("fill", "wrap")
    grid: ClassVar[tuple[int, int]] = (10, 8)
    """Rows and columns of cells that a box may fill."""
    boxes: ClassVar[tuple[int, int]] = (3, 12)
    """Fewest and most boxes at a time."""
    std: ClassVar[float] = 76.5

    @property
    def raw(self) -> bool:
        return self.variant == "wrap"

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        n, device = len(frames), frames.device
        (rows, columns), (fewest, most) = self.grid, self.boxes
        count = torch.randint(fewest, most + 1, (n, 1), generator=generator, device=device)
        order = torch.rand(n, rows * columns, generator=generator, device=device).argsort(1)
        cell = order[:, :most]  # [N, most], none of them twice
        env = torch.arange(n, device=device)[:, None]
        place = (env, cell // columns, slice(None), cell % columns)

        old = self._cells(frames)[place]  # [N, most, box_h, box_w, ...]
        noise = torch.randn(old.shape, generator=generator, device=device)
        used = torch.arange(most, device=device) < count  # [N, most]
        used = used.view(n, most, *[1] * (old.ndim - 2))
        noisy = frames.clone()
        self._cells(noisy)[place] = torch.where(used, self._new(old, noise), old)
        if not want_mask:
            return noisy, None
        mask = torch.zeros_like(frames, dtype=torch.bool)
        self._cells(mask)[place] = used.expand(old.shape)
        return noisy, mask

    def _cells(self, images: Tensor) -> Tensor:
        """Return a view [N, rows, box_h, columns, box_w, ...] of what the grid covers.

        The grid leaves out the lowest twentieth of the picture, as the release does.
        """
        rows, columns = self.grid
        box_h, box_w = images.shape[1] * 2 // 21, images.shape[2] // columns
        covered = images[:, : rows * box_h, : columns * box_w]
        return covered.unflatten(1, (rows, box_h)).unflatten(3, (columns, box_w))

    def _new(self, old: Tensor, noise: Tensor) -> Tensor:
        """Return the pixels of boxes, uint8, from those below and from normal draws."""
        if self.variant == "wrap":
            new = (old + (self.strength * self.std * noise).trunc_()).remainder_(256)
        else:
            fill = 127.5 + self.std * noise
            # A blend with weight 1 would round: a few pixels in a million would show what is below.
            new = fill if self.strength >= 1 else old + self.strength * (fill - old)
            new = new.clamp_(0, 255)
        return new.to(torch.uint8)


NOISE = RandomBox
