"""Random Network Distillation: pays for what a network has not yet learned to imitate of a fixed random one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ssedb.bonuses.base import Bonus, NoOptions
from ssedb.networks import ConvTrunk, glorot
from ssedb.objectives import masked_mean

CLIP = 5.0


@dataclass(frozen=True)
class RNDOptions(NoOptions):
    """RND's own choices."""

    channels: tuple[int, int, int] = (32, 64, 64)
    """Filters of the three convolutions."""
    feature_dim: int = 512
    """Size of the features that are imitated."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": dict(channels=(16, 32, 32), feature_dim=256),
        "rooms": dict(channels=(8, 16, 16), feature_dim=64),
    }

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        return cls.PRESETS[preset]


class RandomNetworkDistillation(Bonus):
    """Pays for newest frames on which a predictor misses a fixed random network."""

    Options = RNDOptions
    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, options: RNDOptions) -> None:
        super().__init__(obs_shape, num_actions)
        frame, dim = (1, *obs_shape[1:]), options.feature_dim
        trunk = ConvTrunk(frame, options.channels)
        self.target = nn.Sequential(trunk, glorot(nn.Linear(trunk.out_dim, dim))).requires_grad_(False)
        self.predictor = nn.Sequential(
            ConvTrunk(frame, options.channels),
            glorot(nn.Linear(trunk.out_dim, dim)),
            nn.ReLU(),
            glorot(nn.Linear(dim, dim)),
            nn.ReLU(),
            glorot(nn.Linear(dim, dim)),
        )
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(frame))
        self.register_buffer("squares", torch.ones(frame))

    def scaled(self, next_obs: Tensor) -> Tensor:
        """The newest frame by the running mean and std of each pixel, clipped to +-5."""
        std = (self.squares / self.count.clamp_min(1)).sqrt().clamp_min(1.0)
        return ((next_obs[:, -1:].float() - self.mean) / std).clamp_(-CLIP, CLIP)

    def errors(self, next_obs: Tensor) -> Tensor:
        """Mean squared error of the imitation, [B]."""
        frames = self.scaled(next_obs)
        return (self.predictor(frames) - self.target(frames)).square().mean(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(next_obs)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.predictor(self.scaled(obs))

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self._take_in(next_obs[:, -1:])
        return masked_mean(self.errors(next_obs), mask), {}

    @torch.no_grad()
    def _take_in(self, frames: Tensor) -> None:
        """Moves the running mean and sum of squared deviations by a batch, by Chan's rule."""
        batch, n = frames.float(), len(frames)
        mean, total = batch.mean(0), self.count + n
        delta = mean - self.mean
        self.squares += (batch - mean).square().sum(0) + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.count += n


BONUS = RandomNetworkDistillation
