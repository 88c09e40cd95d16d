"""What fools curiosity: noise on frames and on actions, batched, each draw from a generator that the caller owns.

Every function is pure. Frame noises take uint8 frames [N, H, W] or [N, H, W, 3], leave them as they are, and return the
noisy frames; with `want_mask` also where they touched them (bool, shaped like the frames), else None. A strength of 0
changes nothing and 1 is the paper's. For each noise there are two readings, the paper's and the released code's.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ssedb.float32 import exact

GRID = (10, 8)
"""Rows and columns of cells that a box may fill."""
BOXES = (3, 12)
"""Fewest and most boxes at a time."""
BOX_STD = 76.5
PIXEL_STD = 80.0
STICKY_PROBABILITY = 0.25
TV_SHARE = 3
"""The noisy TV takes this part of the picture's height and width."""
CLOUDS = 6
CLOUD_STEP = 0.03
CLOUD_RADIUS = 0.08
CLOUD_BRIGHTNESS = 160.0
FLICKER_GRID = 4
FLICKER_STD = 60.0


def random_boxes(
    frames: Tensor,
    strength: float,
    generator: torch.Generator,
    reading: Literal["fill", "wrap"] = "fill",
    want_mask: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Noise in 3 to 12 cells of the grid, other cells each time: 20x20 pixels on a raw 210x160 frame, 8x10 on 84x84.

    `fill` blends a box over with N(127.5, 76.5), from strength 1 on entirely; `wrap` adds N(0, 76.5) modulo 256.
    """
    n, height, width = frames.shape[:3]
    rows, columns = GRID
    box_h, box_w = (
        height * 2 // 21,
        width // columns,
    )  # the lowest twentieth of the picture is never touched
    count = torch.randint(BOXES[0], BOXES[1] + 1, (n, 1), generator=generator, device=frames.device)
    cell = torch.rand((n, rows * columns), generator=generator, device=frames.device).argsort(1)[
        :, : BOXES[1]
    ]
    used = torch.arange(BOXES[1], device=frames.device) < count  # [N, 12]
    env = torch.arange(n, device=frames.device)[:, None]
    place = (env, cell // columns, slice(None), cell % columns)

    def cells(
        images: Tensor,
    ) -> Tensor:  # a view [N, 10, box_h, 8, box_w, ...] of the part that the grid covers
        part = images[:, : rows * box_h, : columns * box_w]
        return part.unflatten(1, (rows, box_h)).unflatten(3, (columns, box_w))

    old = cells(frames)[place]  # [N, 12, box_h, box_w, ...]
    noise = torch.randn(old.shape, generator=generator, device=frames.device)
    if reading == "fill":
        fill = 127.5 + BOX_STD * noise
        # A blend with weight 1 would round: a few pixels in a million would tell what lies below.
        new = (fill if strength >= 1 else old + strength * (fill - old)).clamp_(0, 255)
    else:
        new = (old + (strength * BOX_STD * noise).trunc_()).remainder_(256)
    used = used.view(n, BOXES[1], *[1] * (old.ndim - 2))
    noisy = frames.clone()
    cells(noisy)[place] = torch.where(used, new.to(torch.uint8), old)
    if not want_mask:
        return noisy, None
    mask = torch.zeros_like(frames, dtype=torch.bool)
    cells(mask)[place] = used.expand(old.shape)
    return noisy, mask


def pixel_noise(
    frames: Tensor,
    strength: float,
    generator: torch.Generator,
    reading: Literal["add", "zeros"] = "add",
    want_mask: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Draw N(0, 80) for every pixel: `add` it, or with `zeros` put max(N, 0) modulo 256 where the pixel is exactly 0.

    The release casts to uint8, which wraps: 257 becomes 1.
    """
    noise = torch.randn(frames.shape, generator=generator, device=frames.device).mul_(
        strength * PIXEL_STD
    )
    if reading == "add":
        mask = torch.ones_like(frames, dtype=torch.bool) if want_mask else None
        return noise.add_(frames).clamp_(0, 255).to(torch.uint8), mask
    zero = frames == 0
    return torch.where(
        zero, noise.clamp_(min=0).remainder_(256).to(torch.uint8), frames
    ), zero if want_mask else None


def sticky_actions(
    actions: Tensor, previous: Tensor, strength: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Each action is replaced by the one executed before with probability 0.25; `previous` is -1 where there is none.

    Returns the actions to execute and where they were replaced.
    """
    draw = torch.rand(actions.shape, generator=generator, device=actions.device)
    stuck = (draw < strength * STICKY_PROBABILITY) & (previous >= 0)
    return torch.where(stuck, previous, actions), stuck


def show_tv(
    frames: Tensor, screen: Tensor, strength: float, want_mask: bool = False
) -> tuple[Tensor, Tensor | None]:
    """A noisy TV in the lower right corner: `screen` uint8 [N, h, w] covers what is below it, wholly from strength 1 on."""
    height, width = screen.shape[1:3]
    noisy = frames.clone()
    corner = noisy[:, -height:, -width:]
    shown = screen if frames.ndim == 3 else screen[..., None]
    corner.copy_((corner + min(strength, 1.0) * (shown.float() - corner)).clamp_(0, 255))
    if not want_mask:
        return noisy, None
    mask = torch.zeros_like(frames, dtype=torch.bool)
    mask[:, -height:, -width:] = True
    return noisy, mask


def tune_tv(screen: Tensor, pressed: Tensor, generator: torch.Generator) -> Tensor:
    """Where the agent pressed the button [N], the TV shows another noise; elsewhere the same as before."""
    fresh = torch.randint(
        0,
        256,
        screen.shape,
        generator=generator,
        device=screen.device,
        dtype=torch.uint8,
    )
    return torch.where(pressed[:, None, None], fresh, screen)


@exact
def show_clouds(
    frames: Tensor, places: Tensor, strength: float, want_mask: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Soft bright blobs at `places` [N, clouds, 2], parts of the height and width, round the edges."""
    height, width = frames.shape[1:3]

    def fade(size: int, place: Tensor) -> Tensor:  # [N, clouds, size]
        distance = (torch.arange(size, device=frames.device) / size - place[..., None]).abs()
        distance = torch.minimum(distance, 1 - distance)
        return torch.exp(-0.5 * (distance / CLOUD_RADIUS).square())

    light = fade(height, places[..., 0]).transpose(1, 2) @ fade(width, places[..., 1])  # [N, H, W]
    light = strength * CLOUD_BRIGHTNESS * light
    light = light if frames.ndim == 3 else light[..., None]
    noisy = (frames + light).clamp_(0, 255).to(torch.uint8)
    return noisy, noisy != frames if want_mask else None


def drift_clouds(places: Tensor, generator: torch.Generator) -> Tensor:
    """One step of Brownian motion."""
    return (
        places + CLOUD_STEP * torch.randn(places.shape, generator=generator, device=places.device)
    ) % 1


def flicker(
    frames: Tensor, strength: float, generator: torch.Generator, want_mask: bool = False
) -> tuple[Tensor, Tensor | None]:
    """A backdrop of 4x4 large fields, each brighter or darker by N(0, 60) at every step."""
    n, height, width = frames.shape[:3]
    fields = torch.randn((n, FLICKER_GRID, FLICKER_GRID), generator=generator, device=frames.device)
    row = torch.arange(height, device=frames.device) * FLICKER_GRID // height
    column = torch.arange(width, device=frames.device) * FLICKER_GRID // width
    light = strength * FLICKER_STD * fields[:, row][:, :, column]  # [N, H, W]
    light = light if frames.ndim == 3 else light[..., None]
    noisy = (frames + light).clamp_(0, 255).to(torch.uint8)
    return noisy, torch.ones_like(frames, dtype=torch.bool) if want_mask else None
