"""DB-BeBold: rewards steps from known to unknown states, measured in DB's representation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.bonuses.db_ucb import UCBOptions, UpperConfidence
from ssedb.validate import NonNegativeFloat


@dataclass(frozen=True)
class BeBoldOptions(UCBOptions):
    """Settings of DB-UCB, and the weight of the current state's novelty."""

    regulation: NonNegativeFloat = 0.5
    """The reward is max(0, novelty(s') - this * novelty(s))."""


class BeBold(UpperConfidence):
    """Reward for the gain in novelty from one state to the next, in DB's representation."""

    Options = BeBoldOptions
    examples: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: BeBoldOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.regulation = options.regulation
        self.register_buffer("examples", self.actions.examples(), persistent=False)

    def state(self, obs: Tensor) -> Tensor:
        """Return the mean over all actions of DB's representation of (s, a), [B, Z].

        Where actions are several choices or vectors, the mean is over some fixed ones.
        """
        encoded = self.encoder(self.normalize.for_convs(obs))
        means = [
            self.posterior(encoded, action.expand(len(obs), -1))[0] for action in self.examples
        ]
        return torch.stack(means).mean(0)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        now, later = self.gain(self.state(obs)), self.gain(self.state(next_obs))
        return (later - self.regulation * now).clamp_min(0)

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.add(self.state(obs))


BONUS = BeBold
