"""DB-ensemble: disagreement of models of the dynamics over DB's representation."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ssedb import objectives
from ssedb.actions import NumActions
from ssedb.bonuses.db import DynamicBottleneck
from ssedb.networks import Ensemble
from ssedb.normalize import FeatureNorm
from ssedb.options import EnsembleOptions
from ssedb.reservoir import Reservoir


class DBEnsemble(DynamicBottleneck):
    """Reward for the disagreement of models that predict the next state from DB's representation.

    Model k predicts the projected next state p = f_m^P(s') from the mean of z; the reward is
    sqrt(mean over dimensions of Var_k[prediction_k(z)]). With enough data all models predict the
    same mean, also where the next state is noise. A memory of the run, a uniform sample of its
    transitions, keeps them from forgetting what the newest rollout does not show.
    """

    Options = EnsembleOptions
    uses_mask = True
    memories = ("memory",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: EnsembleOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.model_input = options.model_input
        self.scale = FeatureNorm(options.latent_dim)
        self.ensemble = Ensemble(
            options.models, options.latent_dim, options.model_dim, options.latent_dim
        )
        self.memory = Reservoir(options.memory, obs_shape, num_actions) if options.memory else None
        self.averages = options.reward_by == "momentum"
        if self.averages:
            self.momentum_posterior = copy.deepcopy(self.posterior).requires_grad_(False)
            self.momentum_ensemble = copy.deepcopy(self.ensemble).requires_grad_(False)
            self.fixed = (*self.fixed, "momentum_posterior", "momentum_ensemble")

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        if self.averages:
            state = self.momentum_encoder(self.normalize.for_convs(obs))
            z = self.momentum_posterior(state, self.actions.vector(actions))[0]
            predictions = self.momentum_ensemble(self.model_inputs(z))
        else:
            predictions = self.predict(self.represent(obs, actions)[0])
        return predictions.var(0, correction=0).mean(-1).sqrt()

    def predict(self, z: Tensor) -> Tensor:
        """Return each model's prediction of the projected next state, [K, B, Z], from z [B, Z]."""
        return self.ensemble(self.model_inputs(z))

    def model_inputs(self, z: Tensor) -> Tensor:
        """Return the models' inputs for z, both [B, Z]."""
        scaled = self.scale(z)
        if self.model_input == "direction":
            # z is short where data are rare. There all models would agree on what is near 0.
            scaled = normalize(scaled, dim=-1) * math.sqrt(z.shape[-1])
        return scaled

    def momentum_copies(self) -> list[tuple[nn.Module, nn.Module]]:
        copies = super().momentum_copies()
        if self.averages:
            copies.append((self.momentum_posterior, self.posterior))
            copies.append((self.momentum_ensemble, self.ensemble))
        return copies

    def loss_over(
        self, z: Tensor, actual: Tensor, mask: Tensor | None
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        errors = self.errors(z, actual)
        loss = objectives.masked_mean(errors.sum(0), mask)
        metrics = {"ensemble_error": objectives.masked_mean(errors.mean(0), mask)}
        if self.memory is not None:
            with torch.no_grad():
                obs, actions, next_obs = self.memory.sample(len(z))
                z = self.represent(obs, actions)[0]
                actual = self.momentum_projection(self.target(next_obs))
            errors = self.errors(z, actual)
            loss = loss + errors.sum(0).mean() * (self.memory.seen > 0)
            metrics["memory_error"] = errors.mean()
        return loss, metrics

    def errors(self, z: Tensor, actual: Tensor) -> Tensor:
        """Return each model's squared error, a mean over dimensions: two of [B, Z] to [K, B]."""
        return (self.predict(z) - actual).square().mean(-1)

    @torch.no_grad()
    def observe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> None:
        self.scale.observe(self.represent(obs, actions)[0])
        if self.memory is not None:
            self.memory.observe(obs, actions, next_obs, mask)


BONUS = DBEnsemble
