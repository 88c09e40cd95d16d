"""Conversion of raw frames to the agent's: gray, 84x84, uint8."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

SIDE = 84
LUMA = (0.299, 0.587, 0.114)


def to_agent_frames(frames: Tensor, side: int = SIDE) -> Tensor:
    """Convert images to gray and resize them; vectors [N, D] stay as they are.

    Weighted gray, then a bilinear resize with antialiasing (as Pillow's), then truncation.

    Args:
        frames: uint8 [N, H, W] or [N, H, W, 3].
        side: height and width of the result.

    Returns:
        Frames, uint8 [N, side, side].
    """
    done = frames.ndim == 2 or frames.shape[1:] == (side, side)
    return frames if done else _shrink(frames, side)


def _shrink(frames: Tensor, side: int) -> Tensor:
    if frames.ndim == 4:  # a matrix product would follow torch's TF32 switch
        red, green, blue = frames.unbind(-1)
        frames = (LUMA[0] * red).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])
    resized = interpolate(
        frames.float()[:, None], (side, side), mode="bilinear", antialias=True, align_corners=False
    )
    # A flat white picture may come out a rounding error below 255: truncation would make it 254.
    return (resized[:, 0] + 1e-3).clamp_(0, 255).to(torch.uint8)
