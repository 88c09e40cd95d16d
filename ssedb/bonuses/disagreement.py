"""Disagreement: rewards transitions on which an ensemble of forward models does not agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import dropout

from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder, ForwardModels
from ssedb.objectives import masked_mean
from ssedb.validate import require


@dataclass(frozen=True)
class DisagreementOptions(FeatureOptions):
    """Disagreement's own choices."""

    models: int = 10
    """Forward models in the ensemble."""
    loss_dropout: float = 0.2
    """Share of each model's samples that are left out of its loss, so that the models see different data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.models > 1, "models", self.models, "must be 2 or more")
        require(
            0 <= self.loss_dropout < 1,
            "loss_dropout",
            self.loss_dropout,
            "must be 0 or more and below 1",
        )


class Disagreement(Bonus):
    """Reward for the variance of an ensemble's predictions in fixed random features."""

    Options = DisagreementOptions
    fixed = ("encoder",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: int, options: DisagreementOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.options = options
        self.encoder = Encoder(obs_shape, options.channels, options.feature_dim).requires_grad_(
            False
        )
        self.ensemble = ForwardModels(options.models, options.feature_dim, num_actions)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return (
            self.ensemble(self.encoder(self.normalize.for_convs(obs)), actions)
            .var(0, correction=0)
            .mean(-1)
        )

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encoder(self.normalize.for_convs(obs))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        now, later = (
            self.encoder(self.normalize.for_convs(obs)),
            self.encoder(self.normalize.for_convs(next_obs)),
        )
        errors = self.ensemble.errors(now, actions, later)  # [K, B]
        kept = dropout(torch.ones_like(errors), self.options.loss_dropout)
        return masked_mean((errors * kept).mean(0), mask), {}


BONUS = Disagreement
