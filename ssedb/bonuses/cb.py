"""Curiosity Bottleneck: rewards frames that a compressed code needs many nats for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus, TrunkOptions
from ssedb.networks import glorot, make_trunk
from ssedb.normalize import FrameNorm, newest_frame
from ssedb.objectives import kl_to_standard_normal, masked_mean
from ssedb.validate import NonNegativeFloat, PositiveInt


@dataclass(frozen=True)
class CBOptions(TrunkOptions):
    """Settings of CB."""

    code_dim: PositiveInt = 64
    """Size of the code."""
    beta: NonNegativeFloat = 1e-3
    """Weight of the compression."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"rooms": dict(code_dim=32)}


class CuriosityBottleneck(Bonus):
    """Reward for the KL divergence of a frame's code, trained to predict the return and no more.

    The return is always 0, whatever the extrinsic reward, so only the compression is left. That is
    the self-supervised setting in which the paper compares DB with CB.
    """

    Options = CBOptions

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: CBOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.options = options
        self.trunk = make_trunk(newest_frame(obs_shape), options.channels)
        self.code = glorot(nn.Linear(self.trunk.out_dim, 2 * options.code_dim))
        self.value = glorot(nn.Linear(options.code_dim, 1))
        self.scale = FrameNorm(obs_shape)

    def encode(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the std [B, code_dim] of the newest frame's code."""
        mean, raw = self.code(self.trunk(self.scale(obs, self.normalize))).chunk(2, -1)
        return mean, softplus(raw).clamp_min(1e-3)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return kl_to_standard_normal(*self.encode(next_obs)).clamp_min(0)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.encode(obs)[0]

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mean, std = self.encode(next_obs)
        code = mean + std * torch.randn_like(mean)
        error = masked_mean(self.value(code).squeeze(-1).square(), mask)  # every return is 0
        nats = masked_mean(kl_to_standard_normal(mean, std), mask)
        return error + self.options.beta * nats, {
            "value_error": error.detach(),
            "code_nats": nats.detach(),
        }

    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.scale.observe(next_obs)


BONUS = CuriosityBottleneck
