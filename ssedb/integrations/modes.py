"""Torch's modes, which the caller may have switched on around a reward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """Run a block with gradients, outside of the caller's inference mode and autocast."""
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield
