"""Samples that are of no use to a bonus: refused, or noted."""

from __future__ import annotations

import warnings

from ssedb.bonuses.base import Bonus
from ssedb.errors import ConfigError, Note
from ssedb.integrations.samples import Samples
from ssedb.reservoir import Reservoir


def require_rows(name: str, bonus: Bonus, rollout: Samples) -> None:
    """Raise ConfigError for a single transition if a bonus compares those of a batch."""
    if bonus.compares_rows and rollout.size == (1, 1):
        raise ConfigError(
            f"bonus={name!r}: it compares the states of a batch, and this is a single one; "
            "use several environments, or reward whole rollouts"
        )


def note_empty_memory(name: str, bonus: Bonus) -> None:
    """Warn if the memory of a bonus has stored no transition of the first rollout."""
    memories = [module for module in bonus.modules() if isinstance(module, Reservoir)]
    if any(not memory.seen for memory in memories):
        text = (
            f"bonus={name!r}: its memory stores nothing, as consecutive images share no frames; "
            "give stacks of frames, the newest last, or set memory=0"
        )
        warnings.warn(Note(text), stacklevel=5)
