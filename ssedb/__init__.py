"""Self-supervised exploration with the Dynamic Bottleneck."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ssedb.agent import Agent, load
    from ssedb.bonuses import list_bonuses, make_bonus
    from ssedb.config import TrainConfig
    from ssedb.envs import make_env
    from ssedb.envs.names import GAMES
    from ssedb.errors import ConfigError, TrainingError
    from ssedb.evaluation import Evaluation, evaluate
    from ssedb.run import TrainResult, resume, train

# Each name is imported when it is first used: torch takes seconds to load, and `ssedb --help` should not wait for it.
_HOME = {
    "Agent": "ssedb.agent",
    "ConfigError": "ssedb.errors",
    "Evaluation": "ssedb.evaluation",
    "GAMES": "ssedb.envs.names",
    "TrainConfig": "ssedb.config",
    "TrainResult": "ssedb.run",
    "TrainingError": "ssedb.errors",
    "evaluate": "ssedb.evaluation",
    "list_bonuses": "ssedb.bonuses",
    "load": "ssedb.agent",
    "make_bonus": "ssedb.bonuses",
    "make_env": "ssedb.envs",
    "resume": "ssedb.run",
    "train": "ssedb.run",
}

__all__ = [
    "GAMES",
    "Agent",
    "ConfigError",
    "Evaluation",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "evaluate",
    "list_bonuses",
    "load",
    "make_bonus",
    "make_env",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ssedb' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
