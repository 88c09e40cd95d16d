"""DB-count: counts the past choices that are near this one in DB's representation, and pays like a count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.db import DynamicBottleneck
from ssedb.objectives import squared_distances
from ssedb.options import DBOptions
from ssedb.validate import PositiveInt, require

WIDTH_ROWS = 1024
"""Choices of the memory from which the kernel's width is taken."""


@dataclass(frozen=True)
class DBCountOptions(DBOptions):
    """DB's choices, and those of the memory."""

    memory: PositiveInt = 4096
    """Past choices kept, an even draw from all of life; they are encoded anew after each rollout, as z moves on."""
    neighbours: PositiveInt = 10
    """The kernel is as wide as the distance to this many nearest choices in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.memory > self.neighbours,
            "memory",
            self.memory,
            f"must be more than {self.neighbours} (neighbours)",
        )


class DBCount(DynamicBottleneck):
    """Reward of 1 / sqrt(N + 1), N a count of past state-action pairs near this one in DB's representation."""

    Options = DBCountOptions
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
        self.register_buffer(
            "past", torch.zeros(options.memory, options.latent_dim)
        )  # their means of z
        self.register_buffer("width", torch.tensor(1.0))  # squared
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def counts(self, z: Tensor) -> Tensor:
        """How many of all past choices are near z [B, Z], estimated from those in memory, [B]."""
        near = (-squared_distances(z, self.past) / self.width).exp() * self.held()
        return near.sum(-1) * (self.seen / self.seen.clamp(1, self.memory))

    def held(self) -> Tensor:
        """Which places of the memory are filled, bool [memory]."""
        return torch.arange(self.memory, device=self.past.device) < self.seen

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return (self.counts(self.represent(obs, actions)[0]) + 1).rsqrt()

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        """Reservoir sampling: the n-th choice takes a place at random with probability memory / n."""
        order = self.seen + torch.arange(len(obs), device=obs.device)
        draw = (torch.rand(len(obs), dtype=torch.float64, device=obs.device) * (order + 1)).long()
        place = torch.where(order < self.memory, order, draw)
        taken = place < self.memory
        place, obs, actions = place[taken], obs[taken], actions[taken]
        # Of those that drew the same place the last stays, as if they had come one by one.
        turn = torch.arange(len(place), device=obs.device)
        last = turn.new_zeros(self.memory).scatter_reduce(0, place, turn, "amax")[place] == turn
        place, obs, actions = place[last], obs[last], actions[last]
        self.past_obs[place], self.past_actions[place] = obs, actions
        if len(place):
            self.past[place] = self.represent(obs, actions)[0]
        self.seen += len(order)

    @torch.no_grad()
    def after_rollout(self) -> None:
        """Encodes the memory with the model as it is now, and takes the kernel's width from it."""
        held = torch.nonzero(self.held()).flatten()
        for rows in held.split(1024):
            self.past[rows] = self.represent(self.past_obs[rows], self.past_actions[rows])[0]
        if len(held) > self.neighbours:
            past = self.past[held]
            nearest = (
                squared_distances(past[:WIDTH_ROWS], past).kthvalue(self.neighbours + 1).values
            )  # itself is the first
            self.width.copy_(torch.where(nearest.mean() > 0, nearest.mean(), self.width))


BONUS = DBCount
