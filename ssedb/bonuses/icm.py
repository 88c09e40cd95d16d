"""The Intrinsic Curiosity Module: reward for the errors of a forward model over features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.base import Encoded, FeatureOptions
from ssedb.networks import ForwardModels, InverseModel
from ssedb.objectives import masked_mean


@dataclass(frozen=True)
class ICMOptions(FeatureOptions):
    """Settings of ICM."""

    features: Literal["inverse", "random"] = "inverse"
    """Features that the forward model predicts: inverse-dynamics, or of a random network."""


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
        return self.forward_model.errors(now.detach(), actions, later.detach())[0]

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
        inverse = masked_mean(self.inverse.errors(now, actions, later), mask)
        return inverse + forward, {
            "inverse_loss": inverse.detach(),
            "forward_loss": forward.detach(),
        }


BONUS = IntrinsicCuriosity
