"""A bonus that tells how it was used."""

from typing import ClassVar

import torch

from ssedb.bonuses import bonus_class


class Recorder(bonus_class("none")):
    """Writes down what it is called for, and with how many transitions."""

    uses_context = True
    calls: ClassVar[list] = []

    def reward(self, obs, actions, next_obs, context):
        self.calls.append(f"reward {len(obs)} {len(context.episodes)}")
        return torch.zeros(len(obs))

    def observe(self, obs, actions, next_obs, context):
        self.calls.append(f"observe {len(obs)} {len(context.episodes)}")

    def loss(self, obs, actions, next_obs, mask=None):
        self.calls.append(f"loss {len(obs)}")
        return torch.zeros(()), {}

    def after_step(self):
        self.calls.append("after_step")

    def after_epoch(self):
        self.calls.append("after_epoch")

    def after_rollout(self):
        self.calls.append("after_rollout")


RECORDER = f"{__name__}:Recorder"
