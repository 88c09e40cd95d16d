"""Settings of an `IntrinsicReward`, apart from those of its bonus."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssedb.validate import require


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with Python's numbers for NumPy's, which a saved file may not hold."""
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()}


def require_valid(settings: dict[str, Any]) -> None:
    """Raise ConfigError for a setting that is out of range."""
    for name, least in (("epochs", 1), ("batch_size", 1), ("seed", 0)):
        value = settings[name]
        valid = isinstance(value, int) and value >= least
        require(valid, name, repr(value), f"must be a whole number, {least} or more")
    for name in ("learning_rate", "adam_eps", "gamma", "share"):
        value = settings[name]
        require(isinstance(value, int | float), name, repr(value), "must be a number")
    rate, gamma, share = settings["learning_rate"], settings["gamma"], settings["share"]
    require(0 < rate < 1, "learning_rate", rate, "must be between 0 and 1")
    require(0 <= gamma <= 1, "gamma", gamma, "must be from 0 to 1")
    require(0 < share <= 1, "share", share, "must be above 0 and at most 1")
    precision = settings["precision"]
    known = precision in ("fp32", "tf32", "bf16")
    require(known, "precision", repr(precision), "use fp32, tf32 or bf16")
