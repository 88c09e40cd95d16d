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
    from ssedb.integrations.reward import IntrinsicReward
    from ssedb.runs.agent import Agent, load
    from ssedb.runs.evaluation import Evaluation, evaluate
    from ssedb.runs.loop import TrainResult, resume, train

# Names are imported on first use: torch takes seconds to load, and `ssedb --help` need not wait.
_NAMES = {
    "ssedb.bonuses": ("list_bonuses", "make_bonus"),
    "ssedb.config": ("TrainConfig",),
    "ssedb.envs": ("make_env",),
    "ssedb.envs.names": ("GAMES",),
    "ssedb.errors": ("ConfigError", "TrainingError"),
    "ssedb.integrations.reward": ("IntrinsicReward",),
    "ssedb.runs.agent": ("Agent", "load"),
    "ssedb.runs.evaluation": ("Evaluation", "evaluate"),
    "ssedb.runs.loop": ("TrainResult", "resume", "train"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "GAMES",
    "Agent",
    "ConfigError",
    "Evaluation",
    "IntrinsicReward",
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
