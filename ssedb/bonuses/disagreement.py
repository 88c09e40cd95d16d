"""Disagreement: rewards where an ensemble of forward models disagrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor
from torch.nn.functional import dropout

from ssedb.actions import NumActions
from ssedb.bonuses.base import Encoded, FeatureOptions
from ssedb.networks import ForwardModels
from ssedb.objectives import masked_mean


@dataclass(frozen=True)
class DisagreementOptions(FeatureOptions):
    """Settings of Disagreement."""

    models: Annotated[int, Ge(2)] = 10
    """Forward models in the ensemble."""
    loss_dropout: Annotated[float, Ge(0), Lt(1)] = 0.2
    """Share of samples left out of each model's loss, so that models see different data."""


class Disagreement(Encoded):
    """Reward for the variance of an ensemble's predictions in fixed random features."""

    Options = DisagreementOptions
    fixed = ("encoder",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: DisagreementOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.options = options
        self.encoder.requires_grad_(False)
        self.ensemble = ForwardModels(options.models, options.feature_dim, num_actions)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.ensemble(self.encode(obs), actions).var(0, correction=0).mean(-1)

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        errors = self.ensemble.errors(self.encode(obs), actions, self.encode(next_obs))  # [K, B]
        kept = dropout(torch.ones_like(errors), self.options.loss_dropout)
        return masked_mean((errors * kept).mean(0), mask), {}


BONUS = Disagreement
