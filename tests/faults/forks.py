"""Runs in a forked process, which a test may kill: a new Python would load torch for seconds."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from typing import Any

import torch

from ssedb.runs import checkpoint
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import silent
from tests.toy import tiny_config

SMALL = dict(
    env="rooms-tiny",
    noise="random-box",
    num_envs=4,
    minibatch_envs=2,
    rollout_steps=8,
    obs_norm_steps=32,
    steps=128,
    checkpoint_minutes=0,
    threads=1,  # a fork has none of the other threads, and would wait for them for ever
    policy_channels=(4, 4, 4),
    bonus_options=dict(channels=(4, 4, 4), state_dim=16, hidden_dim=16, latent_dim=8),
)
"""Settings of a run of four updates that is saved after each."""


def forked(function: Callable[[], Any]) -> int:
    """Call a function in a forked process; return the process's number."""
    # Emulators that wait to be freed: without their threads, the fork would crash on them.
    gc.collect()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        torch.set_num_threads(1)  # the threads of the pool are not there after a fork
        function()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a process; return its exit code, negative for the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def small_run(out, progress=silent, **changes):
    """Train the small run in a folder."""
    return train(tiny_config(out, **{**SMALL, **changes}), progress)


def gone_on(out):
    """Take a killed run to its end, as a user would."""
    return resume(out) if (out / "config.toml").exists() else small_run(out)


def numbers(out):
    """Return the metrics without what a clock tells."""
    return [
        {key: value for key, value in row.items() if key not in ("time", "sps")}
        for row in read_metrics(out)
    ]


def last_state(out):
    """Return the state in the newest checkpoint."""
    return checkpoint.load_latest(out / "checkpoints")[0]


def same(one: Any, other: Any) -> bool:
    """Tell whether two states are equal, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other
