"""No noise."""

from __future__ import annotations

from ssedb.noises.base import Noise


class NoNoise(Noise):
    """No change of frames or actions."""


NOISE = NoNoise
