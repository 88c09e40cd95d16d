"""DB-ensemble: the disagreement of models over z, for what a transition tells of the dynamics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ssedb.bonuses.db import DynamicBottleneck
from ssedb.networks import Ensemble
from ssedb.normalize import FeatureNorm
from ssedb.objectives import masked_mean
from ssedb.options import DBOptions
from ssedb.validate import PositiveInt


@dataclass(frozen=True)
class EnsembleOptions(DBOptions):
    """Settings of DB and of the ensemble."""

    models: Annotated[int, Ge(2)] = 5
    """Models that predict the next state from z."""
    model_dim: PositiveInt = 256
    """Width of a model's two hidden layers."""


class DBEnsemble(DynamicBottleneck):
    """Reward for the disagreement of models that predict the next state from DB's representation.

    Model k predicts the projected next state p = f_m^P(s') from the mean of z. The reward is
    sqrt(mean over dimensions of Var_k[prediction_k(z)]). With enough data all models predict the
    same mean, also where the next state is noise.
    """

    Options = EnsembleOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: int, options: EnsembleOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.scale = FeatureNorm(options.latent_dim)
        self.ensemble = Ensemble(
            options.models, options.latent_dim, options.model_dim, options.latent_dim
        )

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        predictions = self.ensemble(self.scale(self.represent(obs, actions)[0]))  # [K, B, Z]
        return predictions.var(0, correction=0).mean(-1).sqrt()

    def loss_over(
        self, z: Tensor, next_state: Tensor, mask: Tensor | None
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        differences = self.ensemble(self.scale(z)) - self.momentum_projection(next_state)
        errors = differences.square().mean(-1)  # [K, B]
        return masked_mean(errors.sum(0), mask), {
            "ensemble_error": masked_mean(errors.mean(0), mask)
        }

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.scale.observe(self.represent(obs, actions)[0])


BONUS = DBEnsemble
