"""The noisy TV for vectors: dimensions of noise that the agent itself can stir."""

from __future__ import annotations

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.noises.base import Memory, last_action, takes_last_action
from ssedb.noises.gaussian_dims import GaussianDims


class TVDims(GaussianDims):
    """Vectors get 8 further dimensions of N(0, 1), which change with one of the actions.

    That is the last of discrete actions, the last option of the last of several choices, or the
    upper half of the last dimension of a vector.
    """

    def begin(self, num_envs: int, num_actions: NumActions, generator: torch.Generator) -> Memory:
        button = last_action(num_envs, num_actions, generator.device)
        return {"noise": self._drawn(num_envs, generator), "button": button}

    def advance(
        self, memory: Memory, actions: Tensor, dones: Tensor, generator: torch.Generator
    ) -> Memory:
        pressed = takes_last_action(actions, memory["button"])[:, None]
        fresh = self._drawn(len(actions), generator)
        return {**memory, "noise": torch.where(pressed, fresh, memory["noise"])}

    def disturb_frames(
        self, frames: Tensor, memory: Memory, generator: torch.Generator, want_mask: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        return self._appended(frames, memory["noise"], want_mask)


NOISE = TVDims
