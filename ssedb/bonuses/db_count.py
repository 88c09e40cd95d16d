"""DB-count: a count bonus over past state-action pairs that are near in DB's representation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.db import DynamicBottleneck
from ssedb.objectives import squared_distances
from ssedb.options import DBOptions
from ssedb.reservoir import reservoir_places
from ssedb.validate import PositiveInt, require

WIDTH_ROWS = 1024
"""Rows of the memory from which the kernel's width is computed."""


@dataclass(frozen=True)
class DBCountOptions(DBOptions):
    """Settings of DB and of the memory."""

    memory: PositiveInt = 4096
    """Past state-action pairs kept, a uniform sample of the run, encoded after each rollout."""
    neighbours: PositiveInt = 10
    """The kernel is as wide as the distance to the neighbour of this rank in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"must be more than {self.neighbours} (neighbours)"
        require(self.memory > self.neighbours, "memory", self.memory, remedy)


class DBCount(DynamicBottleneck):
    """Reward of 1 / sqrt(N + 1), N a count of past pairs (s, a) that are near in z."""

    Options = DBCountOptions
    memories = ("past_obs", "past_actions")
    past_obs: Tensor
    past_actions: Tensor
    past: Tensor
    width: Tensor
    seen: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: DBCountOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.memory, self.neighbours = options.memory, options.neighbours
        kind = torch.uint8 if len(obs_shape) == 3 else torch.float32
        self.register_buffer("past_obs", torch.zeros(options.memory, *obs_shape, dtype=kind))
        action = (options.memory, *self.actions.shape)
        self.register_buffer("past_actions", torch.zeros(action, dtype=self.actions.dtype))
        # Means of z.
        self.register_buffer("past", torch.zeros(options.memory, options.latent_dim))
        self.register_buffer("width", torch.tensor(1.0))  # squared
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def counts(self, z: Tensor) -> Tensor:
        """Estimate from the memory how many of all past pairs are near z [B, Z], [B]."""
        near = (-squared_distances(z, self.past) / self.width).exp() * self.held()
        return near.sum(-1) * (self.seen / self.seen.clamp(1, self.memory))

    def held(self) -> Tensor:
        """Tell which rows of the memory are filled, bool [memory]."""
        return torch.arange(self.memory, device=self.past.device) < self.seen

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return (self.counts(self.represent(obs, actions)[0]) + 1).rsqrt()

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        """Store pairs in the rows of `reservoir_places`."""
        every = torch.ones(len(obs), dtype=torch.bool, device=obs.device)
        row = reservoir_places(self.seen, every, self.memory)
        taken = row < self.memory
        row, obs, actions = row[taken], obs[taken], actions[taken]
        self.past_obs[row] = obs
        self.past_actions[row] = actions
        if len(row):
            self.past[row] = self.represent(obs, actions)[0]
        self.seen += len(every)

    @torch.no_grad()
    def after_rollout(self) -> None:
        """Encode the memory with the updated model, and compute the kernel's width from it."""
        held = torch.nonzero(self.held()).flatten()
        for rows in held.split(1024):
            self.past[rows] = self.represent(self.past_obs[rows], self.past_actions[rows])[0]
        if len(held) > self.neighbours:
            past = self.past[held]
            distances = squared_distances(past[:WIDTH_ROWS], past)
            nearest = distances.kthvalue(self.neighbours + 1).values  # a row's nearest is itself
            self.width.copy_(torch.where(nearest.mean() > 0, nearest.mean(), self.width))


BONUS = DBCount
