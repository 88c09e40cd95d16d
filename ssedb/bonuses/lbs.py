"""Latent Bayesian Surprise: rewards what the next state changes in the belief about a latent variable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import LEAK, Encoder, glorot
from ssedb.normalize import RunningMoments
from ssedb.objectives import kl_to_standard_normal, masked_mean, predictive_lower_bound
from ssedb.validate import NonNegativeFloat


@dataclass(frozen=True)
class LBSOptions(FeatureOptions):
    """LBS's own choices."""

    beta: NonNegativeFloat = 0.01
    """Weight of the divergence in the loss."""


class LatentBayesianSurprise(Bonus):
    """Reward for the divergence of a latent posterior from its prior (Latent Bayesian Surprise).

    KL[q(z | s, a, s') || p(z | s, a)], both diagonal Gaussians. z is trained to tell the standardised features of the
    next state in a fixed random network.
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
        self.transition = _layers(dim + self.actions.width, dim)
        self.prior = glorot(nn.Linear(dim, 2 * dim))
        self.posterior = nn.Sequential(_layers(2 * dim, dim), glorot(nn.Linear(dim, 2 * dim)))
        self.head = glorot(nn.Linear(dim, dim))

    def expect(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Hidden state of the transition, [B, D], before the next state is seen."""
        state = self.encoder(self.normalize.for_convs(obs))
        return self.transition(torch.cat([state, self.actions.vector(actions)], -1))

    def believe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and std [B, D] of the posterior, and its divergence from the prior [B]."""
        hidden = self.expect(obs, actions)
        prior_mean, prior_std = _gaussian(self.prior(hidden))
        seen = self.next_encoder(self.normalize.for_convs(next_obs))
        mean, std = _gaussian(self.posterior(torch.cat([hidden, seen], -1)))
        # In units of the prior, which change no divergence, the prior is the standard normal.
        return mean, std, kl_to_standard_normal((mean - prior_mean) / prior_std, std / prior_std)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.believe(obs, actions, next_obs)[2].clamp_min(
            0
        )  # rounding may leave -1e-7 where it is 0

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return _gaussian(self.prior(self.expect(obs, actions)))[0]

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mean, std, surprise = self.believe(obs, actions, next_obs)
        told = self.head(mean + std * torch.randn_like(mean))
        likelihood = predictive_lower_bound(
            self.targets(next_obs), told, torch.ones_like(told[:, :1]), mask
        )
        nats = masked_mean(surprise, mask)
        return self.beta * nats - likelihood, {
            "likelihood": likelihood.detach(),
            "surprise": nats.detach(),
        }

    def targets(self, next_obs: Tensor) -> Tensor:
        """Random features of the next state [B, D] by the running mean and std of each; as they are until some were seen."""
        features, scale = self.target(self.normalize.for_convs(next_obs)), self.target_scale
        return (features - scale.mean) / torch.where(
            scale.count > 0, scale.std.clamp_min(1e-4), 1.0
        )

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.target_scale.add(self.target(self.normalize.for_convs(next_obs)))


def _layers(inputs: int, dim: int) -> nn.Sequential:
    return nn.Sequential(
        glorot(nn.Linear(inputs, dim)),
        nn.LeakyReLU(LEAK),
        glorot(nn.Linear(dim, dim)),
        nn.LeakyReLU(LEAK),
    )


def _gaussian(x: Tensor) -> tuple[Tensor, Tensor]:
    """Split [B, 2 D] into a mean and a std, each [B, D]."""
    mean, raw = x.chunk(2, -1)
    return mean, softplus(raw) + 1e-4


BONUS = LatentBayesianSurprise
