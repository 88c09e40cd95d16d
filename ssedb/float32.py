"""Full float32 products, whatever torch's TF32 switch says."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

torch_lock = threading.RLock()
"""Lock of the thread that sets the TF32 switch, which the whole process shares, or captures a CUDA
graph."""


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in products on a GPU. Other threads wait to set the switch meanwhile."""
    matmul = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    with torch_lock:
        before = matmul.allow_tf32, convolutions.allow_tf32
        matmul.allow_tf32 = convolutions.allow_tf32 = allowed
        try:
            yield
        finally:
            matmul.allow_tf32, convolutions.allow_tf32 = before


def exact(function: F) -> F:
    """Make a function compute its products in full float32. Its gradient follows torch's switch."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_available():
            return function(*args, **kwargs)
        with tf32(False):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
