"""Intrinsic Curiosity Module: rewards errors of a forward model over inverse-dynamics features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder, ForwardModels, glorot
from ssedb.objectives import masked_mean


class InverseFeatures(Bonus):
    """Encoder whose features tell which action led from one observation to the next."""

    Options = FeatureOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: int, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        dim = options.feature_dim
        self.encoder = Encoder(obs_shape, options.channels, dim)
        self.inverse = nn.Sequential(
            glorot(nn.Linear(2 * dim, dim)), nn.ReLU(), glorot(nn.Linear(dim, num_actions))
        )

    def encode(self, obs: Tensor) -> Tensor:
        """Features of observations, [B, D]."""
        return self.encoder(self.normalize.for_convs(obs))

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encode(obs)

    def inverse_loss(
        self, now: Tensor, actions: Tensor, later: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Mean cross-entropy of the actions [B], told from the features [B, D] before and after them."""
        guess = self.inverse(torch.cat([now, later], -1))
        return masked_mean(cross_entropy(guess, actions, reduction="none"), mask)


class IntrinsicCuriosity(InverseFeatures):
    """Reward for what a forward model gets wrong in inverse-dynamics features."""

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: int, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.forward_model = ForwardModels(1, options.feature_dim, num_actions)

    def errors(self, now: Tensor, actions: Tensor, later: Tensor) -> Tensor:
        """Mean squared error of the forward model, [B]; the features are given, no gradient reaches them."""
        return (self.forward_model(now.detach(), actions)[0] - later.detach()).square().mean(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(self.encode(obs), actions, self.encode(next_obs))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        now, later = self.encode(obs), self.encode(next_obs)
        inverse = self.inverse_loss(now, actions, later, mask)
        forward = masked_mean(self.errors(now, actions, later), mask)
        return inverse + forward, {
            "inverse_loss": inverse.detach(),
            "forward_loss": forward.detach(),
        }


BONUS = IntrinsicCuriosity
