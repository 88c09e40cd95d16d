"""Elementwise functions that torch.compile makes one kernel of."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of tensors at its first call; without a compiler, warn and call it."""
    fast: Any = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal fast
        if fast is None:
            # One kernel for each value of a float: one for all values may keep the first unnoticed
            # (https://github.com/pytorch/pytorch/issues/194976).
            careful = torch._dynamo.config.patch(recompile_limit=64, specialize_float=True)
            fast = careful(torch.compile(function))
        try:
            return fast(*args, **kwargs)
        except torch._dynamo.exc.TorchDynamoException as error:  # no Triton, or no C compiler
            reason = str(error).splitlines()[0]
            warnings.warn(f"{function.__name__} is not compiled: {reason}", stacklevel=2)
            fast = function
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
