"""Matrix products with all digits of their factors, whatever torch's TF32 switch says."""

from __future__ import annotations

from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor as a product should see it: on a GPU in float64, which has no TF32 form."""
    return tensor.double() if tensor.is_cuda else tensor


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right in the dtype of `left`."""
    return (wide(left) @ wide(right)).to(left.dtype)
