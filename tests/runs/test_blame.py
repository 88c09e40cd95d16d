"""Errors of the machine and of code from outside, told in one line."""

import pytest
import torch

import ssedb
from ssedb.errors import TrainingError
from ssedb.runs.blame import blaming
from tests.toy import tiny_config


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_full_memory_is_one_line_that_another_try_may_pass(tmp_path, error):
    said = "^out of memory at step 5; use smaller networks"
    with pytest.raises(TrainingError, match=said) as told, blaming(tmp_path, lambda: "at step 5"):
        raise error
    assert told.value.may_pass
    assert not (tmp_path / "error.log").exists()


def test_networks_that_no_memory_holds_end_in_one_line(tmp_path):
    with pytest.raises(TrainingError, match=r"^out of memory before training"):
        ssedb.train(tiny_config(tmp_path / "run", policy_width=10**11))
