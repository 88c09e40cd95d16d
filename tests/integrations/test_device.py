"""IntrinsicReward away from the CPU: torch's meta device, without numbers, stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.tensor  # before Generator is replaced
import torch.fx.experimental._config as symbolic
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ssedb
from tests.integrations.corridor import rollout, small

META = torch.device("meta")
MAY_MIX = ("aten._to_copy", "aten.copy_", "aten.index.Tensor")
"""Operations of torch that take tensors of two devices: copies, and indices on the CPU."""
NO_META = {"e3b", "db-ngu"}
"""Bonuses that number episodes by torch.unique, which meta tensors lack."""


class OnCpu(torch.Generator):
    """A generator of the CPU, whatever device is asked for."""

    def __new__(cls, device: object = None) -> OnCpu:
        return super().__new__(cls)


class OneDevice(TorchDispatchMode):
    """Fails on an operation over two devices; answers what only numbers could."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        devices = {x.device.type for x in tensors if x.ndim or x.device == META}
        assert len(devices) < 2 or str(op).startswith(MAY_MIX), f"{op} over {devices}"
        target = torch.device((kwargs or {}).get("device") or META)
        if devices == {"meta"} and str(op).startswith("aten._local_scalar_dense"):
            return tensors[0].dtype.is_floating_point * 1.0
        if devices == {"meta"} and str(op).startswith("aten._to_copy") and target != META:
            return torch.zeros(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        return op(*args, **(kwargs or {}))


@pytest.fixture
def meta(monkeypatch):
    monkeypatch.setattr("ssedb.engine.host.pick_device", torch.device)
    monkeypatch.setattr(torch, "Generator", OnCpu)
    adam = torch.optim.Adam
    plain = lambda weights, fused, capturable, **how: adam(weights, **how)  # noqa: E731
    monkeypatch.setattr(torch.optim, "Adam", plain)
    with symbolic.patch(meta_nonzero_assume_all_nonzero=True):
        yield


@pytest.mark.parametrize("bonus", [b for b in ssedb.list_bonuses() if b not in NO_META])
def test_intrinsic_reward_on_another_device_mixes_no_devices(meta, bonus):
    with OneDevice():
        reward = small(bonus, device="meta")
        for _ in range(2):
            assert reward.compute(rollout()).device == META
            reward.begin_episodes([True, False, True])
        state = reward.checkpoint()["state"]
    assert all(x.device.type == "cpu" for x in tree_leaves(state) if isinstance(x, Tensor))
