"""Memory that rollouts take."""

from __future__ import annotations

import torch

from ssedb.collect.rollout import Rollout
from ssedb.engine.distributed import ALONE, Group
from ssedb.engine.host import memory
from ssedb.errors import ConfigError


def require_memory(
    steps: int,
    num_envs: int,
    frame_shape: tuple[int, ...],
    device: torch.device,
    group: Group = ALONE,
    count: int = 1,
) -> None:
    """Raise ConfigError if rollouts of a process do not fit in the memory of its device.

    Args:
        steps: length of a rollout.
        num_envs: environments of this process.
        frame_shape: of the agent's frames.
        device: where the rollouts are kept.
        group: the processes that share the run.
        count: how many rollouts are kept at a time.
    """
    needed = count * Rollout(steps, num_envs, frame_shape, "meta").nbytes / 2**30
    there = memory(device) / 2**30
    if needed > there:
        raise ConfigError(
            f"num_envs={num_envs * group.size}: rollouts of {steps} steps would take "
            f"{needed:,.0f} GiB, and there are {there:,.0f}; use fewer environments or a smaller "
            "--rollout-steps"
        )
