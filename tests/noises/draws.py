"""What the tests of noises share: generators, sizes of frames, and a chi-square test of bytes."""

import numpy as np
import torch
from scipy.stats import chi2

RAW, SMALL = (210, 160, 3), (84, 84)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def flat(value: int, count: int, shape: tuple[int, ...] = SMALL) -> torch.Tensor:
    """Return frames of one brightness."""
    return torch.full((count, *shape), value, dtype=torch.uint8)


def assert_bytes(values: torch.Tensor, below: np.ndarray) -> None:
    """Hold bytes against truncated draws of which the share below[k - 1] lies below k.

    Chance alone fails once in a million.
    """
    edges = np.array([1, 32, 64, 96, 128, 160, 192, 224, 255])
    shares = np.diff([0, *below[edges - 1], 1])
    counts = np.histogram(values.numpy(), [0, *edges, 256])[0]
    kept = shares * len(values) > 5  # rarer ones hardly tell
    expected = shares[kept] * len(values)
    assert ((counts[kept] - expected) ** 2 / expected).sum() < chi2.isf(1e-6, kept.sum())
