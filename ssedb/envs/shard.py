"""The share that one process has of a run's environments."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Shard(NamedTuple):
    """Share number `rank` of `size` equal and contiguous shares of a batch.

    Random numbers are drawn for the whole batch by everyone, who uses the rows of its own share:
    several processes then see what one would see.
    """

    rank: int = 0
    size: int = 1

    def whole(self, own: Tensor) -> Tensor:
        """Return a batch whose rows of this share are these; those of other shares are filler."""
        return own if self.size == 1 else own.repeat(self.size, *[1] * (own.ndim - 1))

    def own(self, whole: Tensor) -> Tensor:
        """Return the rows of this share."""
        return whole.chunk(self.size)[self.rank]
