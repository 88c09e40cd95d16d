"""The Intrinsic Curiosity Module: reward for the errors of a forward model over features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ssedb.actions import NumActions, action_space
from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder, ForwardModels, glorot
from ssedb.objectives import masked_mean


@dataclass(frozen=True)
class ICMOptions(FeatureOptions):
    """Settings of ICM."""

    features: Literal["inverse", "random"] = "inverse"
    """Features that the forward model predicts: inverse-dynamics, or of a random network."""


class Encoded(Bonus):
    """Bonus over the features that an encoder makes of observations."""

    Options = FeatureOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.encoder = Encoder(obs_shape, options.channels, options.feature_dim)

    def encode(self, obs: Tensor) -> Tensor:
        """Return the features of observations, [B, D]."""
        return self.encoder(self.normalize.for_convs(obs))

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encode(obs)


class InverseModel(nn.Sequential):
    """Model that guesses the action from the features before and after it: [B, 2 D] to [B, A]."""

    def __init__(self, dim: int, num_actions: NumActions) -> None:
        actions = action_space(num_actions)
        super().__init__(
            glorot(nn.Linear(2 * dim, dim)), nn.ReLU(), glorot(nn.Linear(dim, actions.width))
        )
        self.actions = actions

    def loss(self, now: Tensor, actions: Tensor, later: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mean error of the guesses, given features [B, D] around the actions.

        The error of a choice is its cross-entropy, that of a vector its mean squared error.
        """
        guess = self(torch.cat([now, later], -1))
        return masked_mean(self.actions.errors(guess, actions), mask)


class IntrinsicCuriosity(Encoded):
    """Reward for the error of a forward model in the features of the next observation."""

    Options = ICMOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: ICMOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        dim = options.feature_dim
        if options.features == "inverse":
            self.inverse: InverseModel | None = InverseModel(dim, num_actions)
        else:
            self.inverse = None
            self.encoder.requires_grad_(False)
            self.fixed = ("encoder",)
        self.forward_model = ForwardModels(1, dim, num_actions)

    def errors(self, now: Tensor, actions: Tensor, later: Tensor) -> Tensor:
        """Return the forward model's mean squared error, [B]; no gradient reaches the features."""
        return (self.forward_model(now.detach(), actions)[0] - later.detach()).square().mean(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(self.encode(obs), actions, self.encode(next_obs))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        now, later = self.encode(obs), self.encode(next_obs)
        forward = masked_mean(self.errors(now, actions, later), mask)
        if self.inverse is None:
            return forward, {}
        inverse = self.inverse.loss(now, actions, later, mask)
        return inverse + forward, {
            "inverse_loss": inverse.detach(),
            "forward_loss": forward.detach(),
        }


BONUS = IntrinsicCuriosity
