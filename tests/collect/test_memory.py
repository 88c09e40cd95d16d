"""Rollouts that do not fit in memory."""

import pytest
import torch

from ssedb.collect import memory
from ssedb.collect.collector import Collector
from ssedb.engine.base import Engine
from ssedb.errors import ConfigError
from ssedb.trainer import Trainer
from tests.toy import Grid, tiny_config


@pytest.mark.parametrize(("overlaps", "rollouts"), [(False, 1), (True, 2)])
def test_collector_whose_rollouts_exceed_the_memory_is_refused(monkeypatch, overlaps, rollouts):
    class Overlapping(Engine):
        pass

    Overlapping.overlaps = overlaps
    env = Grid(num_envs=3)
    used = rollouts * sum(
        x.nbytes for x in vars(Collector(env, 5).rollout).values() if isinstance(x, torch.Tensor)
    )
    monkeypatch.setattr(memory, "memory", lambda device: used)
    Collector(env, 5, Overlapping(env.device))
    monkeypatch.setattr(memory, "memory", lambda device: used - 1)
    with pytest.raises(ConfigError, match="num_envs=3: rollouts of 5 steps would take"):
        Collector(env, 5, Overlapping(env.device))


def test_memory_of_vectors_is_that_of_their_dimensions(monkeypatch):
    config = tiny_config(
        "unused", env="CartPole-v1", rollout_steps=64, bonus="rnd", bonus_options={}
    )
    monkeypatch.setattr(memory, "memory", lambda device: 100_000)  # 14 images
    Trainer(config).close()
    monkeypatch.setattr(memory, "memory", lambda device: 10_000)
    with pytest.raises(ConfigError, match="num_envs=8: rollouts of 64 steps would take"):
        Trainer(config)
