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
    from ssedb.runs.agent import Agent, load
    from ssedb.runs.evaluation import Evaluation, evaluate
    from ssedb.runs.loop import TrainResult, resume, train

# Names are imported on first use: torch takes seconds to load, and `ssedb --help` need not wait.
_HOME = {
    "Agent": "ssedb.runs.agent",
    "ConfigError": "ssedb.errors",
    "Evaluation": "ssedb.runs.evaluation",
    "GAMES": "ssedb.envs.names",
    "TrainConfig": "ssedb.config",
    "TrainResult": "ssedb.runs.loop",
    "TrainingError": "ssedb.errors",
    "evaluate": "ssedb.runs.evaluation",
    "list_bonuses": "ssedb.bonuses",
    "load": "ssedb.runs.agent",
    "make_bonus": "ssedb.bonuses",
    "make_env": "ssedb.envs",
    "resume": "ssedb.runs.loop",
    "train": "ssedb.runs.loop",
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
