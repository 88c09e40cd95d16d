"""RE3: pays for states that are far from the others of the batch, in the space of a fixed random encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder
from ssedb.validate import require


@dataclass(frozen=True)
class RE3Options(FeatureOptions):
    """RE3's own choices."""

    feature_dim: int = 64
    """Size of the random features."""
    neighbours: int = 3
    """How many nearest neighbours the distance is the mean of."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": dict(channels=(16, 32, 32)),
        "rooms": dict(channels=(8, 16, 16)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.neighbours > 0, "neighbours", self.neighbours, "must be 1 or more")


class RE3(Bonus):
    """Pays for the distance to the nearest neighbours in fixed random features (state entropy)."""

    Options = RE3Options
    fixed = ("encoder",)

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, options: RE3Options) -> None:
        super().__init__(obs_shape, num_actions)
        self.neighbours = options.neighbours
        self.encoder = Encoder(obs_shape, options.channels, options.feature_dim).requires_grad_(False)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return nearest_distance(self.encoder(self.normalize.for_convs(next_obs)), self.neighbours).log1p()

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encoder(self.normalize.for_convs(obs))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros((), device=obs.device), {}


def nearest_distance(features: Tensor, neighbours: int) -> Tensor:
    """The mean distance of each row [B, D] to its nearest others, [B]; 0 where there are none."""
    if len(features) < 2:
        return features.new_zeros(len(features))
    # Differences, not the matrix product: rows that are alike must be at distance 0, not at a rounding error's root.
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    return distances.topk(min(neighbours, len(features) - 1), largest=False).values.mean(-1)


BONUS = RE3
