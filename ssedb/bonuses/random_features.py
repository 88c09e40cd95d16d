"""Curiosity over random features: rewards errors of a forward model in a fixed random network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder, ForwardModels
from ssedb.objectives import masked_mean


class RandomFeatures(Bonus):
    """Reward for what a forward model gets wrong in fixed random features."""

    Options = FeatureOptions
    fixed: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: int, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.encoder = Encoder(obs_shape, options.channels, options.feature_dim).requires_grad_(
            False
        )
        self.forward_model = ForwardModels(1, options.feature_dim, num_actions)

    def encode(self, obs: Tensor) -> Tensor:
        """Random features of observations, [B, D]."""
        return self.encoder(self.normalize.for_convs(obs))

    def errors(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        """Mean squared error of the forward model, [B]."""
        return self.forward_model.errors(self.encode(obs), actions, self.encode(next_obs))[0]

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(obs, actions, next_obs)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encode(obs)

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return masked_mean(self.errors(obs, actions, next_obs), mask), {}


BONUS = RandomFeatures
