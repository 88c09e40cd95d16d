"""DB-UCB: the information gain of Bayesian linear regression over z, as in Theorem 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.db import DynamicBottleneck
from ssedb.objectives import information_gain
from ssedb.options import DBOptions
from ssedb.validate import PositiveFloat


@dataclass(frozen=True)
class UCBOptions(DBOptions):
    """Settings of DB and of the regression."""

    ridge: PositiveFloat = 1.0
    """Lambda begins as this times the identity."""


class UpperConfidence(DynamicBottleneck):
    """Reward for the information gained about dynamics that are linear in DB's representation."""

    Options = UCBOptions
    precision: Tensor
    covariance: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: UCBOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        identity = torch.eye(options.latent_dim, dtype=torch.float64)
        # Lambda = ridge I + sum of eta eta', and its inverse.
        self.register_buffer("precision", identity * options.ridge)
        self.register_buffer("covariance", (identity / options.ridge).float())

    def gain(self, eta: Tensor) -> Tensor:
        """Return sqrt(I), I the information gain of each row of eta [B, Z], [B]."""
        return information_gain(eta, self.covariance, self.options.state_dim).sqrt()

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.gain(self.represent(obs, actions)[0])

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.add(self.represent(obs, actions)[0])

    def add(self, eta: Tensor) -> None:
        """Add eta' eta of rows [k, Z] to Lambda, and invert it."""
        eta = eta.double()  # a float32 product would be TF32 on a GPU
        self.precision += eta.T @ eta
        self.covariance.copy_(torch.cholesky_inverse(torch.linalg.cholesky(self.precision)))


BONUS = UpperConfidence
