"""Torch's modes, which the caller may have switched on around a reward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """Run a block with gradients, outside of the caller's inference mode and autocast.

    New tensors are float32 on the CPU, unless the block says otherwise.
    """
    with (
        _own_dtype(),
        _own_device(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
    ):
        yield


@contextmanager
def _own_dtype() -> Iterator[None]:
    callers = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(callers)


def _own_device() -> AbstractContextManager[Any]:
    if torch.get_default_device().type == "cpu":
        return nullcontext()  # the mode would cost time in every operation
    return torch.device("cpu")
