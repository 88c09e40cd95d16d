"""Dictionary observations: the entries that a bonus sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ssedb.envs.seen import entries_seen
from ssedb.errors import ConfigError
from ssedb.integrations.spaces import Images, Vectors, is_image, make_observations


class Entries:
    """Entries of dictionary observations: the only image, or all numbers joined to one vector.

    These are the entries that an agent of `ssedb train` sees. Observations that are no dictionary
    stay as they are.

    Attributes:
        names: of the entries; none if observations are no dictionary.
        space: of what is left of an observation.
    """

    def __init__(self, space: spaces.Space[Any], key: str | None) -> None:
        """Choose the entries.

        Args:
            space: of observations.
            key: the entry to see; chosen as above if None.
        """
        self.names = entries_seen(space, key or "", is_image, "obs_key")
        self._parts = space.spaces if isinstance(space, spaces.Dict) else {}
        self._vectors: dict[str, Images | Vectors] = {}
        self.space = space
        if len(self.names) == 1:
            self.space = self._parts[self.names[0]]
        elif self.names:
            self._vectors = {name: make_observations(self._parts[name]) for name in self.names}
            size = sum(part.shape[0] for part in self._vectors.values())
            self.space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def __call__(self, observations: Any) -> Any:
        """Return the entry [..., *shape], or all entries joined to float32 [..., D]."""
        if not isinstance(observations, Mapping):
            return observations
        if not self.names:
            raise ConfigError(
                f"observations with {', '.join(observations)}: the space has no such entries; make "
                "the reward with the environments that give them"
            )
        if missing := [name for name in self.names if name not in observations]:
            raise ConfigError(f"observations without {missing[0]!r}: give all that the space has")
        if not self._vectors:
            return observations[self.names[0]]
        return torch.cat([self._vector(name, observations[name]) for name in self.names], -1)

    def _vector(self, name: str, entry: Any) -> Tensor:
        """Convert an entry [..., *shape] to float32 [..., D]."""
        x = torch.as_tensor(entry)
        lead = x.shape[: x.ndim - len(self._parts[name].shape or ())]
        return self._vectors[name](x, tuple(lead))
