"""Transitions of a rollout as another trainer collected them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.errors import ConfigError

REWARD_BATCH = 2048
"""Transitions that are rewarded at once, about as many as in our trainer."""

KEYS = ("observations", "actions", "terminateds", "truncateds", "next_observations")
OPTIONAL = ("rewards", "valid")
SampleDict = Mapping[str, Any]
"""Arrays or tensors [T, N, ...] by the names in `KEYS`; `valid` and `rewards` may be there too."""


@dataclass
class Samples:
    """T steps of N environments on the bonus's device."""

    obs: Tensor  # [T, N, ...]
    actions: Tensor  # [T, N] or [T, N, A]
    next_obs: Tensor  # [T, N, ...], at an episode's end its last observation
    dones: Tensor  # bool [T, N], whether the episode ended here
    valid: Tensor  # bool [T, N], whether next_obs is what the action led to
    valid_given: bool = False  # whether the trainer said which are valid

    def __post_init__(self) -> None:
        if not self.valid_given:
            self.valid = self.valid & ~self._crosses_an_end()

    @property
    def size(self) -> tuple[int, int]:
        """Steps and environments."""
        steps, envs = self.dones.shape
        return steps, envs

    def _crosses_an_end(self) -> Tensor:
        """Find pairs whose next observation is the first one of another episode, bool [T, N].

        A trainer that keeps observations alone hands over the next one of its buffer. If the next
        step only resets, the next one of the buffer is the last one of the episode itself.
        """
        false = torch.zeros_like(self.dones)
        t, n = self.dones[:-1].nonzero(as_tuple=True)
        alike = (self.next_obs[t, n] == self.obs[t + 1, n]).flatten(1).all(1)
        false[t, n] = alike & self.valid[t + 1, n]
        return false

    def end_episodes(self, which: Tensor | None) -> None:
        """End the episodes of environments, bool [N], or of all, with the last step."""
        if which is None:
            which = torch.ones_like(self.dones[-1])
        require_envs(which, self.size[1])
        self.dones[-1] |= which

    def episodes(self, first: Tensor) -> Tensor:
        """Number the episodes [T, N], of which those under way at the start have `first` [N]."""
        ended = self.dones.cumsum(0) - self.dones.long()
        return first + self.size[1] * ended

    def transitions(self, t: Tensor, envs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (obs, actions, next_obs) at times t [B] of envs [B]."""
        return self.obs[t, envs], self.actions[t, envs], self.next_obs[t, envs]

    def groups(self, whole: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the indices (t, env) of all valid transitions, those of an environment in order.

        Args:
            whole: whether all steps of an environment must come at once.
        """
        steps, num_envs = self.size
        length = steps if whole else min(steps, REWARD_BATCH)
        for envs in torch.arange(num_envs).split(max(1, REWARD_BATCH // length)):
            for times in torch.arange(steps).split(length):
                t, n = self.valid[times[0] : times[-1] + 1, envs].nonzero(as_tuple=True)
                if len(t):
                    yield t + times[0], n + envs[0]

    def minibatches(
        self, batch_size: int, share: float, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the indices (t, env) of minibatches of about equal size, in random order.

        Args:
            batch_size: most transitions of a minibatch.
            share: of all valid transitions, how many are in one of the minibatches.
            generator: what the order is drawn from, in main memory.
        """
        t, n = self.valid.nonzero(as_tuple=True)
        order = torch.randperm(len(t), generator=generator)[: math.ceil(share * len(t))]
        for rows in order.to(t.device).tensor_split(max(1, math.ceil(len(order) / batch_size))):
            if len(rows):
                yield t[rows], n[rows]


def require_envs(which: Tensor, envs: int) -> None:
    """Raise ConfigError unless `which` tells of every environment."""
    if which.shape != (envs,):
        raise ConfigError(
            f"which of shape {list(which.shape)}: give a bool for each of the {envs} environments"
        )


def join(steps: list[Samples]) -> Samples:
    """Concatenate samples in time."""
    parts = zip(*((s.obs, s.actions, s.next_obs, s.dones, s.valid) for s in steps), strict=True)
    obs, actions, next_obs, dones, valid = map(torch.cat, parts)
    return Samples(obs, actions, next_obs, dones, valid, all(s.valid_given for s in steps))


def one_step(values: tuple[Any, ...], valid: Any = None) -> dict[str, Tensor]:
    """Return samples of one step: copies, since environments write to the same arrays again.

    Args:
        values: arrays or tensors [N, ...] in the order of `KEYS`.
        valid: bool [N], if some are not transitions.
    """
    named = dict(zip(KEYS, values, strict=True)) | ({} if valid is None else {"valid": valid})
    return {name: as_data(name, value).clone()[None] for name, value in named.items()}


def as_data(name: str, value: Any) -> Tensor:
    """Return an array as a tensor, and a tensor without the graph that it came from."""
    array = isinstance(value, np.ndarray)
    if array and not (value.dtype.isnative and min(value.strides, default=0) >= 0):
        # Torch takes no reversed array, and none in another machine's order of bytes.
        value = value.astype(value.dtype.newbyteorder("="), order="C")
    try:
        return torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        shown = " ".join(repr(value).split())[:40]
        raise ConfigError(f"{name}={shown}: give an array or a tensor of numbers") from None


def as_array(value: Any) -> np.ndarray:
    """Copy to an array what environments gave: an array, or entries joined to a tensor."""
    return np.array(value.numpy() if isinstance(value, Tensor) else value)


def tensors(samples: SampleDict, device: torch.device) -> dict[str, Tensor]:
    """Copy samples to a device; raise ConfigError unless all are of the same steps and envs."""
    if missing := [key for key in KEYS if key not in samples]:
        raise ConfigError(f"samples without {missing[0]!r}: give {', '.join(KEYS)}")
    if unknown := [key for key in samples if key not in KEYS + OPTIONAL]:
        known = ", ".join(KEYS + OPTIONAL)
        raise ConfigError(f"samples with {unknown[0]!r}, which is not known: give {known}")
    x = {key: as_data(key, value).to(device) for key, value in samples.items()}
    lead = tuple(x["terminateds"].shape)
    if len(lead) != 2 or 0 in lead:
        raise ConfigError(f"terminateds of shape {list(lead)}: give [steps, envs]")
    for key in (*KEYS, "valid"):
        if key in x and tuple(x[key].shape[:2]) != lead:
            raise ConfigError(
                f"{key} of shape {list(x[key].shape)}: terminateds are {list(lead)}; give "
                "[steps, envs, ...] of the same steps and environments"
            )
    return x
