"""Checks of a run on several processes. Imports no torch, so that mistakes show at once."""

from __future__ import annotations

from ssedb.config import TrainConfig
from ssedb.engine import distributed
from ssedb.errors import ConfigError


def check_processes(config: TrainConfig) -> None:
    """Raise ConfigError if a run does not split over the processes that torchrun has started."""
    count = distributed.size()
    if count == 1:
        return
    for name in ("num_envs", "minibatch_envs"):
        number = getattr(config, name)
        if number % count:
            raise ConfigError(
                f"{name}={number} does not split over {count} processes; use a multiple of {count}"
            )
    if config.engine == "fast":
        raise ConfigError(
            "engine=fast: CUDA graphs are for one process; leave --engine out with several"
        )
    if ":" in config.device:
        raise ConfigError(
            f"device={config.device}: several processes take a GPU each; use --device cuda"
        )
