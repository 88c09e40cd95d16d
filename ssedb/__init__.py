"""Self-supervised exploration with the Dynamic Bottleneck."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ssedb.bonuses import list_bonuses, make_bonus
    from ssedb.config import TrainConfig
    from ssedb.envs import make_env
    from ssedb.envs.names import GAMES
    from ssedb.errors import ConfigError, TrainingError
    from ssedb.run import TrainResult, train

# Each name is imported when it is first used: torch takes seconds to load, and `ssedb --help` should not wait for it.
_HOME = {
    "ConfigError": "ssedb.errors",
    "GAMES": "ssedb.envs.names",
    "TrainConfig": "ssedb.config",
    "TrainResult": "ssedb.run",
    "TrainingError": "ssedb.errors",
    "list_bonuses": "ssedb.bonuses",
    "make_bonus": "ssedb.bonuses",
    "make_env": "ssedb.envs",
    "train": "ssedb.run",
}

__all__ = [
    "GAMES",
    "ConfigError",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "list_bonuses",
    "make_bonus",
    "make_env",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ssedb' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
