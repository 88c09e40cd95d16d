"""No noise."""

from __future__ import annotations

from ssedb.noises.base import Noise


class NoNoise(Noise):
    """Leaves frames and actions as they are."""


NOISE = NoNoise
