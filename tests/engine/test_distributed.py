"""Process groups without torchrun."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ssedb
from ssedb.engine import distributed
from ssedb.errors import ConfigError
from tests.toy import tiny_config

ROOT = Path(__file__).parent.parent.parent


def test_distributed_without_torchrun_is_one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with distributed.process_group() as group:
        assert group is distributed.ALONE
    x = torch.ones(2)
    assert group.all_reduce(x) is group.gather(x) is x
    assert group.gather_objects(3) == [3]
    assert group.any(True)
    monkeypatch.setenv("WORLD_SIZE", "4")  # some clusters set it for other reasons
    assert (distributed.rank(), distributed.size()) == (0, 1)


@pytest.mark.parametrize(
    ("rank", "size", "said"),
    [
        ("0", "2", "WORLD_SIZE=2 is in the environment, and torchrun did not start"),
        ("abc", "2", "RANK='abc' in the environment is no number; unset it"),
        ("0", "b", "WORLD_SIZE='b' in the environment is no number; unset it"),
    ],
)
def test_environment_that_torchrun_did_not_make_is_answered_in_one_line(
    monkeypatch, tmp_path, rank, size, said
):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match=said):
        ssedb.train(tiny_config(tmp_path))


def test_distributed_when_imported_imports_no_torch():
    code = "import sys; import ssedb.engine.distributed; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
