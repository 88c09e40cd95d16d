"""A checkpoint is whole or it is not used; loading runs no code."""

import errno
import os

import pytest
import torch

from ssedb.errors import ConfigError, TrainingError
from ssedb.runs import checkpoint


def save(folder, steps):
    state = {"weights": torch.arange(1000.0), "steps": steps, "nested": {"list": [1, None, 2.5]}}
    return checkpoint.save(folder, state, {"steps": steps, "env": "alien"})


def test_checkpoint_round_trip_keeps_the_newest_two(tmp_path):
    for steps in (10, 20, 30):
        save(tmp_path, steps)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-000000000020.ckpt",
        "step-000000000030.ckpt",
    ]
    told = []
    state, about = checkpoint.load_latest(tmp_path, tell=told.append)
    assert (state["steps"], about, told) == (30, {"steps": 30, "env": "alien"}, [])
    assert torch.equal(state["weights"], torch.arange(1000.0))
    assert checkpoint.about_latest(tmp_path)["env"] == "alien"


def test_checkpoint_of_an_empty_folder_is_none(tmp_path):
    assert checkpoint.load_latest(tmp_path) is None
    assert checkpoint.about_latest(tmp_path / "missing") is None


@pytest.mark.parametrize("damage", ["flip-early", "flip-late", "truncate", "empty", "garbage"])
def test_checkpoint_when_damaged_is_noticed_and_the_one_before_is_used(tmp_path, damage):
    save(tmp_path, 10)
    path = save(tmp_path, 20)
    data = bytearray(path.read_bytes())
    if damage.startswith("flip"):
        data[len(data) // 3 if damage == "flip-early" else -5] ^= 1
    path.write_bytes(
        {"truncate": data[:-100], "empty": b"", "garbage": b"\x00" * 500}.get(damage, bytes(data))
    )
    told = []
    state, _ = checkpoint.load_latest(tmp_path, tell=told.append)
    assert state["steps"] == 10
    assert len(told) == 1
    assert told[0].startswith("step-000000000020.ckpt is damaged (")
    assert told[0].endswith("; using the one before it")
    (tmp_path / "step-000000000010.ckpt").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"no checkpoint in .* can be read"):
        checkpoint.load_latest(tmp_path)


def test_checkpoint_on_a_full_disk_leaves_the_old_ones(tmp_path, monkeypatch):
    save(tmp_path, 10)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TrainingError, match="No space left on device; once that is mended, resume"):
        save(tmp_path, 20)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000000010.ckpt"]
    assert checkpoint.load_latest(tmp_path)[0]["steps"] == 10


def test_checkpoints_that_lead_nowhere_are_none(tmp_path):
    for steps in (1, 2):
        (tmp_path / f"step-{steps:012d}.ckpt").symlink_to(tmp_path / "purged")
    assert checkpoint.about_latest(tmp_path) is None


def test_folder_of_checkpoints_that_cannot_be_read_does_not_count_as_empty(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    assert checkpoint.list_checkpoints(tmp_path / "none") == []
    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(ConfigError, match=r"cannot read .*: Permission denied; make it readable"):
        checkpoint.about_latest(tmp_path)


def test_pipes_and_folders_among_checkpoints_are_passed_over(tmp_path):
    path = checkpoint.save(tmp_path, {}, {"steps": 10})
    os.mkfifo(tmp_path / "step-000000000020.ckpt")
    (tmp_path / "step-000000000030.ckpt").mkdir()
    assert checkpoint.list_checkpoints(tmp_path) == [path]
    assert checkpoint.about_latest(tmp_path)["steps"] == 10


def test_checkpoint_that_cannot_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, {}, {"steps": 10})

    def denied(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(checkpoint, "read_header", denied)
    with pytest.raises(ConfigError, match=r"step-0+10\.ckpt cannot be read \(Permission denied\)"):
        checkpoint.about_latest(tmp_path)
