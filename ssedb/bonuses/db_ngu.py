"""DB-NGU: novelty within the episode times novelty over the run, in DB's representation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.base import Context, episode_numbers
from ssedb.bonuses.db_ucb import UCBOptions, UpperConfidence
from ssedb.objectives import squared_distances
from ssedb.validate import PositiveInt

KERNEL_EPSILON, CLUSTER_DISTANCE = 1e-3, 8e-3


@dataclass(frozen=True)
class NGUOptions(UCBOptions):
    """Settings of DB-UCB and of the episodic memory."""

    neighbours: PositiveInt = 10
    """Nearest state-action pairs of the episode that are compared."""
    lifelong_cap: Annotated[float, Ge(1)] = 5.0
    """Largest factor by which lifelong novelty multiplies the episodic one."""
    memory: PositiveInt = 65536
    """State-action pairs kept, of all episodes under way; the oldest are overwritten."""


class NeverGiveUp(UpperConfidence):
    """Reward for novelty within the episode times novelty over the run, in DB's representation.

    Without a context every transition is an episode of its own.
    """

    Options = NGUOptions
    uses_context = True
    capturable = False  # how much of the memory belongs to the episodes at hand depends on data
    remembered: Tensor
    owners: Tensor
    written: Tensor
    spread: Tensor
    gain_mean: Tensor
    gain_square: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: NGUOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.neighbours, self.lifelong_cap = options.neighbours, options.lifelong_cap
        self.register_buffer("remembered", torch.zeros(options.memory, options.latent_dim))
        self.register_buffer("owners", torch.full((options.memory,), -1))  # the episode of each row
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))
        # Running mean of squared distances to the neighbours.
        self.register_buffer("spread", torch.tensor(1.0))
        self.register_buffer("gain_mean", torch.tensor(0.0))
        self.register_buffer("gain_square", torch.tensor(1.0))

    def nearest(self, eta: Tensor, episodes: Tensor) -> Tensor:
        """Return squared distances to the nearest earlier pairs of the same episode.

        Args:
            eta: means of z, [B, Z].
            episodes: number of each row's episode, int64 [B].

        Returns:
            Distances, [B, neighbours]; inf where the episode has fewer pairs.
        """
        own = torch.isin(self.owners, episodes)
        past = torch.cat([self.remembered[own], eta])
        owners = torch.cat([self.owners[own], episodes])
        order = torch.arange(len(past), device=eta.device)
        # All of the memory, and the rows above in the batch.
        earlier = order < len(past) - len(eta) + order[: len(eta), None]
        unlike = ~(earlier & (owners == episodes[:, None]))
        distances = squared_distances(eta, past).masked_fill_(unlike, torch.inf)
        missing = max(0, self.neighbours - len(past))
        nearest = distances.topk(self.neighbours - missing, largest=False).values
        return torch.nn.functional.pad(nearest, (0, missing), value=torch.inf)

    def episodic(self, eta: Tensor, episodes: Tensor) -> Tensor:
        """Return 1 / sqrt(n + 1), n the summed similarity to the episode's nearest pairs, [B]."""
        relative = (self.nearest(eta, episodes) / self.spread - CLUSTER_DISTANCE).clamp_min(0)
        return ((KERNEL_EPSILON / (relative + KERNEL_EPSILON)).sum(-1) + 1).rsqrt()

    def lifelong(self, eta: Tensor) -> Tensor:
        """Return 1 + (gain - mean) / std of the information gain, clipped to [1, cap], [B]."""
        deviation = (self.gain_square - self.gain_mean.square()).clamp_min(1e-12).sqrt()
        return (1 + (self.gain(eta) - self.gain_mean) / deviation).clamp(1, self.lifelong_cap)

    @torch.no_grad()
    def reward(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> Tensor:
        eta = self.represent(obs, actions)[0]
        return self.episodic(eta, episode_numbers(eta, context)) * self.lifelong(eta)

    @torch.no_grad()
    def observe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, context: Context | None = None
    ) -> None:
        eta = self.represent(obs, actions)[0]
        episodes = episode_numbers(eta, context)
        nearest = self.nearest(eta, episodes)
        known = nearest.isfinite()
        mean = nearest.masked_fill(~known, 0).sum() / known.sum().clamp_min(1)
        self.spread.lerp_(torch.where(known.any(), mean, self.spread).clamp_min(1e-8), 0.01)
        gain = self.gain(eta)
        self.gain_mean.lerp_(gain.mean(), 0.01)
        self.gain_square.lerp_(gain.square().mean(), 0.01)
        self.add(eta)
        if context is not None:
            newest = slice(-len(self.owners), None)
            order = self.written + torch.arange(len(eta), device=eta.device)
            rows = order[newest] % len(self.owners)
            self.remembered[rows], self.owners[rows] = eta[newest], episodes[newest]
            self.written += len(eta)


BONUS = NeverGiveUp
