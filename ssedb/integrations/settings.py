"""Settings of an `IntrinsicReward`, apart from those of its bonus."""

from __future__ import annotations

from typing import Any

from ssedb.validate import require


def require_valid(settings: dict[str, Any]) -> None:
    """Raise ConfigError for a setting that is out of range."""
    for name, least in (("epochs", 1), ("batch_size", 1), ("seed", 0)):
        value = settings[name]
        valid = isinstance(value, int) and value >= least
        require(valid, name, repr(value), f"must be a whole number, {least} or more")
    rate, gamma, share = settings["learning_rate"], settings["gamma"], settings["share"]
    require(0 < rate < 1, "learning_rate", rate, "must be between 0 and 1")
    require(0 <= gamma <= 1, "gamma", gamma, "must be from 0 to 1")
    require(0 < share <= 1, "share", share, "must be above 0 and at most 1")
    precision = settings["precision"]
    known = precision in ("fp32", "tf32", "bf16")
    require(known, "precision", repr(precision), "use fp32, tf32 or bf16")
