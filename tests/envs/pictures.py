"""Atari pictures shrunk to 84x84 in plain NumPy and Pillow."""

import numpy as np
from PIL import Image


def coverage(pixels: int) -> np.ndarray:
    """[84, pixels]: the share of each of 84 equal intervals that each pixel covers."""
    edges, pixel = np.linspace(0, pixels, 85), np.arange(pixels)
    overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
    return overlap.clip(0) * 84 / pixels


def area_mean(gray: np.ndarray) -> np.ndarray:
    return coverage(210) @ gray.astype(np.float64) @ coverage(160).T


def pillow_frame(raw: np.ndarray) -> np.ndarray:
    """Shrink a raw frame as docs/fidelity.md says: uint8 [210, 160, 3] to gray uint8 [84, 84]."""
    gray = Image.fromarray((raw @ np.array([0.299, 0.587, 0.114])).astype(np.float32))
    return np.asarray(gray.resize((84, 84), Image.Resampling.BILINEAR)).astype(np.uint8)
