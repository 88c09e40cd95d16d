"""Dictionary observations: the entries that a bonus sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ssedb.envs.seen import entries_seen
from ssedb.errors import ConfigError
from ssedb.integrations.spaces import Images, Vectors, is_image, make_observations


class Entries:
    """Entries of dictionary observations: the only image, or all numbers joined to one vector.

    `ssedb train` chooses by the same rule, but takes fewer entries for images. Observations that
    are no dictionary stay as they are.

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
        inner = space.spaces if isinstance(space, spaces.Dict) else {}
        self._vectors: dict[str, Images | Vectors] = {}
        self.space = space
        if len(self.names) == 1:
            self.space = inner[self.names[0]]
        elif self.names:
            self._vectors = {name: make_observations(inner[name]) for name in self.names}
            size = sum(entry.shape[0] for entry in self._vectors.values())
            self.space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def __call__(self, observations: Any, lead: tuple[int, ...]) -> Any:
        """Return the entry [*lead, *shape], or all entries joined to float32 [*lead, D]."""
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
        entries = {name: torch.as_tensor(observations[name]) for name in self.names}
        return torch.cat([self._vectors[name](x, lead) for name, x in entries.items()], -1)
