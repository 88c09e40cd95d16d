"""Conversion of what environments give to what a bonus takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.errors import ConfigError
from ssedb.integrations.entries import Entries
from ssedb.integrations.samples import SampleDict, Samples, as_data, tensors
from ssedb.integrations.spaces import Actions, make_observations, spaces_of

TRANSITION = ("observations", "actions", "next_observations")


class Inputs:
    """Observations and actions of environments, on a device, as a bonus takes them.

    Attributes:
        spaces: of observations and of actions, as the environments have them.
        shape: of an observation as the bonus takes it.
        actions: space of actions as the bonus takes them.
        select: what the bonus sees of dictionary observations.
    """

    def __init__(
        self, envs: Any, device: torch.device, rgb: bool | None, obs_key: str | None
    ) -> None:
        """Prepare for environments.

        Args:
            envs: environments, or a pair of spaces.
            device: where the bonus is.
            rgb: whether channels are colours; where they come in threes, if None.
            obs_key: entry of dictionary observations that the bonus sees; chosen if None.
        """
        self.spaces = spaces_of(envs)
        self._device = device
        self.select = Entries(self.spaces[0], obs_key)
        self._observations = make_observations(self.select.space, rgb)
        self._actions = Actions(self.spaces[1])
        self.shape = self._observations.shape
        if 0 in self.shape:
            raise ConfigError(
                f"observations of {self.spaces[0]}: there is no number to see in them"
            )
        self.actions = self._actions.space

    def samples(self, samples: SampleDict, acting_steps: Callable[[Tensor], Tensor]) -> Samples:
        """Convert samples [T, N, ...].

        Args:
            samples: arrays or tensors by name.
            acting_steps: returns from dones [T, N] which steps are valid, bool [T, N]. It is called
                if the samples have no `valid`.
        """
        if not isinstance(samples, Mapping):
            raise ConfigError(f"samples of {type(samples).__name__}: give a dict of arrays [T, N]")
        lead = tuple(np.shape(samples.get("terminateds", ())))
        x = tensors({name: self.select(x, lead) for name, x in samples.items()}, self._device)
        dones = x["terminateds"].bool() | x["truncateds"].bool()
        for name in TRANSITION:
            # As float32, which a larger number does not fit.
            if x[name].is_floating_point() and not x[name].float().isfinite().all():
                raise ConfigError(
                    f"{name} with NaN, Inf or a number beyond float32: mend what gives them"
                )
        return Samples(
            self._observations(x["observations"], lead),
            self._actions(x["actions"], lead),
            self._observations(x["next_observations"], lead),
            dones,
            x["valid"].bool() if "valid" in x else acting_steps(dones),
            valid_given="valid" in x,
        )

    def transitions(self, obs: Any, actions: Any, next_obs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Convert transitions [B, ...]."""
        lead = (len(actions),)
        obs, actions, next_obs = (
            as_data(name, self.select(x, lead)).to(self._device)
            for name, x in zip(TRANSITION, (obs, actions, next_obs), strict=True)
        )
        return (
            self._observations(obs, lead),
            self._actions(actions, lead),
            self._observations(next_obs, lead),
        )
