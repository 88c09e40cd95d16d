"""Devices by name, their memory, and how a process waits for a GPU."""

import ctypes

import pytest
import torch

from ssedb.engine.host import pick_device, sleep_while_waiting
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


class Driver:
    """Driver of two GPUs that keeps the flags it is given."""

    def __init__(self, error: int = 0) -> None:
        self.error, self.flags = error, {}

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = 2
        return 0

    def cuDevicePrimaryCtxSetFlags_v2(self, gpu, flags):
        self.flags[gpu] = flags
        return self.error


@pytest.mark.parametrize("error", [0, 1])
def test_sleep_while_waiting_asks_for_blocking_waits_on_every_gpu(monkeypatch, error):
    driver = Driver(error)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert sleep_while_waiting() is (error == 0)
    assert driver.flags == {0: 4, 1: 4}  # CU_CTX_SCHED_BLOCKING_SYNC


def test_sleep_while_waiting_without_a_driver_does_nothing(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert sleep_while_waiting() is False
