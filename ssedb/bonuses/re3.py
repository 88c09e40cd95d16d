"""RE3: rewards states that are far from the others of the batch in fixed random features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.base import Encoded, FeatureOptions
from ssedb.validate import PositiveInt


@dataclass(frozen=True)
class RE3Options(FeatureOptions):
    """Settings of RE3."""

    feature_dim: PositiveInt = 64
    """Size of the random features."""
    neighbours: PositiveInt = 3
    """Nearest neighbours that are compared, k."""
    distance: Literal["kth", "mean"] = "kth"
    """Distance to the k-th neighbour (RE3's paper), or mean of the k (its released code)."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}  # features of one size

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        distance = "mean" if fidelity == "released" else "kth"
        return {**super().defaults(fidelity, preset, env, noise), "distance": distance}


class RE3(Encoded):
    """Reward for the distance to the k-th neighbour in fixed random features (state entropy).

    log(1 + ||y - y_k||), y_k the k-th nearest of the other next states of the batch.
    """

    Options = RE3Options
    compares_rows = True
    fixed = ("encoder",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: RE3Options
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.options = options
        self.encoder.requires_grad_(False)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        nearest = nearest_distances(self.encode(next_obs), self.options.neighbours)
        return (nearest[:, -1] if self.options.distance == "kth" else nearest.mean(-1)).log1p()

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.zeros((), device=obs.device), {}


def nearest_distances(features: Tensor, neighbours: int) -> Tensor:
    """Return the distances of each row [B, D] to its nearest other rows, the nearest first.

    Their shape is [B, min(neighbours, B - 1)]; a single row gives [[0]].
    """
    if len(features) < 2:
        return features.new_zeros(len(features), 1)
    # By differences: a matrix product would put equal rows at the root of a rounding error.
    distances = torch.cdist(
        features, features, compute_mode="donot_use_mm_for_euclid_dist"
    ).fill_diagonal_(torch.inf)
    return distances.topk(min(neighbours, len(features) - 1), largest=False).values


BONUS = RE3
