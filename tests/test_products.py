"""Products with all digits of their factors; on a GPU too: tests/test_gpu.py."""

import torch

from ssedb.products import product, wide


def test_product_on_a_gpu_is_of_float64_and_comes_back_in_its_dtype(monkeypatch):
    torch.manual_seed(0)
    left, right = torch.randn(3, 500), torch.randn(500, 4)
    assert torch.equal(product(left, right), left @ right)
    assert wide(left) is left
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    found = product(left, right)
    assert found.dtype == torch.float32
    assert torch.equal(found, (left.double() @ right.double()).float())
    assert not torch.equal(found, left @ right)
