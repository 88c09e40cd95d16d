"""Curiosity over random features: ICM with `--features random`, under a name of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ssedb.bonuses.icm import ICMOptions, IntrinsicCuriosity


@dataclass(frozen=True)
class RandomFeatureOptions(ICMOptions):
    """Settings of ICM with fixed random features."""

    features: Literal["random"] = "random"
    """Features that the forward model predicts: of a fixed random network."""


class RandomFeatures(IntrinsicCuriosity):
    """Reward for the error of a forward model in fixed random features."""

    Options: type[Any] = RandomFeatureOptions


BONUS = RandomFeatures
