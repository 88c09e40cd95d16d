"""DB-marginal: the information gain against the batch's own aggregated posterior instead of N(0, I)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ssedb.bonuses.db import DynamicBottleneck
from ssedb.objectives import pairwise_kl


class Marginal(DynamicBottleneck):
    """Reward for posteriors that few others of the batch resemble: DB's bonus with the marginal of the batch.

    The divergence of a Gaussian from a mixture of them has no closed form; its pairwise upper bound does, and it is tight
    where the posteriors are either alike or apart. It lies between 0 and log(batch).
    """

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        mean, std = self.represent(obs, actions)
        apart = pairwise_kl(mean, std, mean, std).fill_diagonal_(
            0
        )  # of itself, whatever rounding says
        divergence = (math.log(len(obs)) - (-apart).logsumexp(-1)).clamp_min(0)
        return divergence.sqrt() if self.options.bonus_root == "sqrt" else divergence


BONUS = Marginal
