"""Process groups without torchrun."""

import subprocess
import sys
from pathlib import Path

import torch

from ssedb.engine import distributed

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


def test_distributed_when_imported_imports_no_torch():
    code = "import sys; import ssedb.engine.distributed; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
