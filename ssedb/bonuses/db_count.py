"""DB-count: counts the past choices that DB's representation cannot tell from this one, and pays like a count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.bonuses.db import DynamicBottleneck
from ssedb.objectives import pairwise_kl
from ssedb.options import DBOptions
from ssedb.validate import require


@dataclass(frozen=True)
class DBCountOptions(DBOptions):
    """DB's choices, and the size of the memory."""

    memory: int = 4096
    """Past choices kept, an even draw from all of life; they are encoded anew after each rollout, as z moves on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.memory > 0, "memory", self.memory, "must be 1 or more")


class DBCount(DynamicBottleneck):
    """Pays 1 / sqrt(N + 1), N the number of past choices whose posterior overlaps this one's."""

    Options = DBCountOptions
    past_obs: Tensor
    past_actions: Tensor
    past_mean: Tensor
    past_std: Tensor
    seen: Tensor

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, options: DBCountOptions) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.memory = options.memory
        self.register_buffer("past_obs", torch.zeros(options.memory, *obs_shape, dtype=torch.uint8))
        self.register_buffer("past_actions", torch.zeros(options.memory, dtype=torch.int64))
        self.register_buffer("past_mean", torch.zeros(options.memory, options.latent_dim))
        self.register_buffer("past_std", torch.ones(options.memory, options.latent_dim))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def counts(self, obs: Tensor, actions: Tensor) -> Tensor:
        """How many of all past choices are like this one, estimated from those in memory, [B]."""
        mean, std = self.represent(obs, actions)
        held = torch.arange(self.memory, device=obs.device) < self.seen
        overlap = (-pairwise_kl(mean, std, self.past_mean, self.past_std)).exp() * held
        return overlap.sum(-1) * (self.seen / held.sum().clamp_min(1))

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return (self.counts(obs, actions) + 1).rsqrt().float()

    @torch.no_grad()
    def take_in(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        """Reservoir sampling: the n-th choice takes a place at random with probability memory / n."""
        order = self.seen + torch.arange(len(obs), device=obs.device)
        draw = (torch.rand(len(obs), dtype=torch.float64, device=obs.device) * (order + 1)).long()
        place = torch.where(order < self.memory, order, draw)
        taken = place < self.memory
        place, obs, actions = place[taken], obs[taken], actions[taken]
        # Of those that drew the same place the last stays, as if they had come one by one.
        last = torch.zeros_like(self.past_actions).scatter_reduce(
            0, place, torch.arange(len(place), device=obs.device), "amax"
        )
        winner = last[place] == torch.arange(len(place), device=obs.device)
        place, obs, actions = place[winner], obs[winner], actions[winner]
        self.past_obs[place], self.past_actions[place] = obs, actions
        self.past_mean[place], self.past_std[place] = self.represent(obs, actions)
        self.seen += len(order)

    @torch.no_grad()
    def after_rollout(self) -> None:
        for rows in torch.arange(self.memory, device=self.past_actions.device).split(1024):
            self.past_mean[rows], self.past_std[rows] = self.represent(self.past_obs[rows], self.past_actions[rows])


BONUS = DBCount
