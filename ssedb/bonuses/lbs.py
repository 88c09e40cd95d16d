"""Latent Bayesian Surprise: rewards the divergence of a latent posterior from its prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import Encoder, dense_layers, glorot
from ssedb.normalize import RunningMoments
from ssedb.objectives import kl_to_standard_normal, masked_mean, predictive_lower_bound
from ssedb.validate import NonNegativeFloat


@dataclass(frozen=True)
class LBSOptions(FeatureOptions):
    """Settings of LBS."""

    beta: NonNegativeFloat = 0.01
    """Weight of the divergence in the loss."""


class LatentBayesianSurprise(Bonus):
    """Reward for the divergence of a latent posterior from its prior (Latent Bayesian Surprise).

    KL[q(z | s, a, s') || p(z | s, a)], both diagonal Gaussians. z is trained to predict the
    standardised features of the next state in a fixed random network.
    """

    Options = LBSOptions
    fixed = ("target",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: LBSOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.beta, dim = options.beta, options.feature_dim
        self.target = Encoder(obs_shape, options.channels, dim).requires_grad_(False)
        self.target_scale = RunningMoments((dim,))
        self.encoder = Encoder(obs_shape, options.channels, dim)
        self.next_encoder = Encoder(obs_shape, options.channels, dim)
        self.transition = dense_layers((dim + self.actions.width, dim, dim))
        self.prior = glorot(nn.Linear(dim, 2 * dim))
        hidden = dense_layers((2 * dim, dim, dim))
        self.posterior = nn.Sequential(hidden, glorot(nn.Linear(dim, 2 * dim)))
        self.head = glorot(nn.Linear(dim, dim))

    def expect(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the hidden state of a transition, [B, D], from its state and action."""
        state = self.encoder(self.normalize.for_convs(obs))
        return self.transition(torch.cat([state, self.actions.vector(actions)], -1))

    def believe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the posterior's mean and std [B, D], and its divergence from the prior [B]."""
        hidden = self.expect(obs, actions)
        prior_mean, prior_std = _gaussian(self.prior(hidden))
        seen = self.next_encoder(self.normalize.for_convs(next_obs))
        mean, std = _gaussian(self.posterior(torch.cat([hidden, seen], -1)))
        # In units of the prior, which change no divergence, the prior is the standard normal.
        return mean, std, kl_to_standard_normal((mean - prior_mean) / prior_std, std / prior_std)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        # Rounding may leave -1e-7 where the divergence is 0.
        return self.believe(obs, actions, next_obs)[2].clamp_min(0)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return _gaussian(self.prior(self.expect(obs, actions)))[0]

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mean, std, surprise = self.believe(obs, actions, next_obs)
        predicted = self.head(mean + std * torch.randn_like(mean))
        unit = torch.ones_like(predicted[:, :1])
        likelihood = predictive_lower_bound(self.targets(next_obs), predicted, unit, mask)
        nats = masked_mean(surprise, mask)
        return self.beta * nats - likelihood, {
            "likelihood": likelihood.detach(),
            "surprise": nats.detach(),
        }

    def targets(self, next_obs: Tensor) -> Tensor:
        """Return random features of the next state [B, D], scaled by running mean and std.

        Until features were observed, they are not scaled.
        """
        features, scale = self.target(self.normalize.for_convs(next_obs)), self.target_scale
        std = torch.where(scale.count > 0, scale.std.clamp_min(1e-4), 1.0)
        return (features - scale.mean) / std

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.target_scale.add(self.target(self.normalize.for_convs(next_obs)))


def _gaussian(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split [B, 2 D] into a mean and a std, each [B, D]."""
    mean, raw = x.chunk(2, -1)
    return mean, softplus(raw) + 1e-4


BONUS = LatentBayesianSurprise
