"""Reservoir: a uniform sample of a run, for models that would forget older transitions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssedb.actions import NumActions, action_space


def reservoir_places(seen: Tensor, keep: Tensor, capacity: int) -> Tensor:
    """Draw places by reservoir sampling: item n of a run takes one with probability capacity / n.

    Vitter's algorithm R, as if the items had come one by one.

    Args:
        seen: earlier items of the run, int64 scalar.
        keep: bool [B], the items that count.
        capacity: number of places.

    Returns:
        Places, int64 [B]; `capacity` for an item that takes none. No two items share another place.
    """
    number = seen + keep.cumsum(0)  # of each item in the run, from 1
    drawn = (torch.rand_like(number, dtype=torch.float64) * number).long()
    place = torch.where(number > capacity, drawn, number - 1)
    place = torch.where(keep, place.clamp_max(capacity), capacity)
    # Of several items for one place the last stays; the device would pick any.
    order = torch.arange(len(place), device=place.device)
    last = order.new_zeros(capacity + 1).scatter_reduce(0, place, order, "amax")
    return torch.where(last[place] == order, place, capacity)


class Reservoir(nn.Module):
    """A uniform sample of all transitions of a run.

    A transition is stored as its stack and the newest frame of the next one, so pairs whose stacks
    do not share frames are left out. A vector is a stack of one.
    """

    frames: Tensor  # [capacity + 1, C + 1, ...]; the last row takes what is not kept
    actions: Tensor  # [capacity + 1, ...]
    seen: Tensor  # int64 scalar, transitions so far

    def __init__(
        self, capacity: int, obs_shape: tuple[int, ...], num_actions: NumActions = 1
    ) -> None:
        super().__init__()
        self.capacity = capacity
        self.obs_shape = obs_shape
        image = len(obs_shape) == 3
        self.stack_shape = obs_shape if image else (1, *obs_shape)
        stack, *size = self.stack_shape
        kind = torch.uint8 if image else torch.float32
        frames = torch.zeros(capacity + 1, stack + 1, *size, dtype=kind)
        self.register_buffer("frames", frames, persistent=False)
        space = action_space(num_actions)
        actions = torch.zeros(capacity + 1, *space.shape, dtype=space.dtype)
        self.register_buffer("actions", actions, persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)

    @torch.no_grad()
    def observe(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> None:
        """Store transitions in the places of `reservoir_places`.

        Args:
            obs: stacks, uint8 [B, C, H, W], or vectors, float32 [B, D].
            actions: int64 [B], or as the action space has them.
            next_obs: the next observations.
            mask: bool [B], the transitions to store; the others cross the end of an episode.
        """
        obs, next_obs = (part.view(-1, *self.stack_shape) for part in (obs, next_obs))
        whole = (obs[:, 1:] == next_obs[:, :-1]).flatten(1).all(1)
        if mask is not None:
            whole &= mask
        place = reservoir_places(self.seen, whole, self.capacity)
        self.frames[place] = torch.cat([obs, next_obs[:, -1:]], dim=1)
        self.actions[place] = actions
        self.seen += whole.sum()

    def sample(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw stored transitions, with replacement; zeros while nothing is stored.

        Returns:
            Observations, actions and next observations, `count` each.
        """
        stored = self.seen.clamp_max(self.capacity)
        place = (torch.rand(count, device=self.seen.device) * stored).long()
        frames = self.frames[place]
        obs, next_obs = (
            part.reshape(-1, *self.obs_shape) for part in (frames[:, :-1], frames[:, 1:])
        )
        return obs, self.actions[place], next_obs

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Save what is stored: a checkpoint is no larger than that."""
        stored = min(int(self.seen), self.capacity)
        # A clone, because a saved slice takes its whole storage along.
        destination[prefix + "frames"] = self.frames[:stored].clone()
        destination[prefix + "actions"] = self.actions[:stored].clone()
        destination[prefix + "seen"] = self.seen

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *others: Any,
    ) -> None:
        """Load what was stored."""
        for name, buffer in self.named_buffers():
            saved = state_dict.get(prefix + name)
            if saved is None:
                missing_keys.append(prefix + name)
            elif saved.ndim:
                buffer[: len(saved)] = saved
            else:
                buffer.copy_(saved)
