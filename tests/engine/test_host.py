"""Devices by name."""

import pytest
import torch

from ssedb.engine.host import pick_device
from ssedb.errors import ConfigError
from ssedb.runs.loop import train
from tests.toy import tiny_config


def test_gpu_that_is_missing_is_named_in_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(
        ConfigError, match="device='cuda:9': torch sees 2 GPUs, numbered from 0; use one of them"
    ):
        pick_device("cuda:9")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(engine="fast"), "needs a GPU"),
        (
            dict(num_envs=10**8, minibatch_envs=10**6),
            r"num_envs=100000000: rollouts of \d+ steps would take [\d,]+ GiB",
        ),
        (
            dict(num_envs=10**8, minibatch_envs=10**6, env="CartPole-v1"),
            r"num_envs=100000000: rollouts of \d+ steps would take [\d,]+ GiB",
        ),
    ],
)
def test_memory_beyond_the_machine_is_refused_without_a_folder(tmp_path, settings, message):
    with pytest.raises(ConfigError, match=message):
        train(tiny_config(tmp_path / "run", **settings))
    assert not (tmp_path / "run").exists()
