"""Random Network Distillation: rewards a predictor's error on a fixed random network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, FeatureOptions
from ssedb.networks import glorot, make_trunk
from ssedb.normalize import FrameNorm, newest_frame
from ssedb.objectives import masked_mean


class RandomNetworkDistillation(Bonus):
    """Reward for the error of imitating a fixed random network on the newest frame."""

    Options = FeatureOptions
    fixed = ("target",)

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        frame, dim = newest_frame(obs_shape), options.feature_dim
        trunk = make_trunk(frame, options.channels)
        self.target = nn.Sequential(trunk, glorot(nn.Linear(trunk.out_dim, dim)))
        self.target.requires_grad_(False)
        self.predictor = nn.Sequential(
            make_trunk(frame, options.channels),
            glorot(nn.Linear(trunk.out_dim, dim)),
            nn.ReLU(),
            glorot(nn.Linear(dim, dim)),
            nn.ReLU(),
            glorot(nn.Linear(dim, dim)),
        )
        self.scale = FrameNorm(obs_shape)

    def errors(self, next_obs: Tensor) -> Tensor:
        """Return the mean squared error of the predictor on the newest frames, [B]."""
        frames = self.scale(next_obs, self.normalize)
        return (self.predictor(frames) - self.target(frames)).square().mean(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(next_obs)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.predictor(self.scale(obs, self.normalize))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return masked_mean(self.errors(next_obs), mask), {}

    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.scale.observe(next_obs)


BONUS = RandomNetworkDistillation
