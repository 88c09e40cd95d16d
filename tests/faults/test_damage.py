"""Damaged, foreign and hostile checkpoints: never used, never run, and named."""

import hashlib
import io
import json
import pickle
import random
import shutil

import pytest
import torch

import ssedb
from ssedb.errors import ConfigError
from ssedb.runs import checkpoint
from ssedb.runs.folder import RunFolder
from ssedb.runs.loop import resume, train
from tests.faults.forks import last_state
from tests.toy import TINY_OPTIONS, tiny_config

SETTINGS = dict(env="rooms-small", steps=256, obs_norm_steps=64)


def save(folder, steps):
    return checkpoint.save(folder, {"steps": steps, "w": torch.arange(9.0)}, {"steps": steps})


@pytest.fixture
def two(tmp_path):
    """A folder with a good checkpoint of step 10 and one of step 20 to be damaged."""
    save(tmp_path, 10)
    return tmp_path, save(tmp_path, 20)


def used_instead(folder):
    """Return the steps of the checkpoint that is loaded and the header's that is read."""
    told = []
    state, about = checkpoint.load_latest(folder, tell=told.append)
    assert about["steps"] == state["steps"]
    assert len(told) == (state["steps"] == 10), told
    assert all("step-000000000020.ckpt is " in line for line in told)
    return state["steps"], checkpoint.about_latest(folder)["steps"]


def test_checkpoint_1000_bit_flips_are_all_detected(two):
    folder, path = two
    good = path.read_bytes()
    header_bits = 8 * good.index(b"PK")  # the lines before torch's own file
    draw = random.Random(0)
    bits = draw.sample(range(header_bits), 500) + draw.sample(range(8 * len(good)), 500)
    for bit in bits:
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        loaded, header = used_instead(folder)
        assert loaded == 10, f"bit {bit} was flipped unnoticed"
        assert header == (10 if bit < header_bits else 20)
    path.write_bytes(good)
    assert used_instead(folder) == (20, 20)


def test_checkpoint_100_truncations_are_all_detected_by_the_header_alone(two):
    folder, path = two
    good = path.read_bytes()
    for length in [0, *random.Random(1).sample(range(1, len(good)), 99)]:
        path.write_bytes(good[:length])
        assert used_instead(folder) == (10, 10)


def test_checkpoint_of_a_newer_format_is_reported_and_kept(two):
    folder, path = two
    newer = path.read_bytes().replace(b"ssedb-checkpoint 2", b"ssedb-checkpoint 3")
    path.write_bytes(newer)
    told = []
    assert checkpoint.load_latest(folder, tell=told.append)[0]["steps"] == 10
    said = "is of format 3, and this ssedb reads up to 2; update ssedb; using the one before it"
    assert told == [f"step-000000000020.ckpt {said}"]
    save(folder, 15)
    assert path.read_bytes() == newer
    (folder / "step-000000000010.ckpt").unlink()
    (folder / "step-000000000015.ckpt").unlink()
    with pytest.raises(ConfigError, match="is of format 3, and this ssedb reads up to 2; update"):
        checkpoint.load_latest(folder)


def test_checkpoint_of_format_1_is_read(tmp_path):
    buffer = io.BytesIO()
    torch.save({"steps": 10}, buffer)
    header = {"steps": 10, "sha256": hashlib.sha256(buffer.getvalue()).hexdigest()}
    old = b"ssedb-checkpoint 1\n" + json.dumps(header).encode() + b"\n" + buffer.getvalue()
    (tmp_path / "step-000000000010.ckpt").write_bytes(old)
    assert checkpoint.load_latest(tmp_path) == ({"steps": 10}, {"steps": 10})
    (tmp_path / "step-000000000010.ckpt").write_bytes(old[:-1] + b"x")
    with pytest.raises(ConfigError, match="its checksum does not match"):
        checkpoint.load_latest(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 500])
def test_rotation_keeps_the_last_good_one_and_removes_a_damaged_later_one(tmp_path, damage):
    for steps in (10, 20):
        save(tmp_path, steps)
    (tmp_path / "step-000000000020.ckpt").write_bytes(damage)
    assert checkpoint.load_latest(tmp_path)[0]["steps"] == 10
    save(tmp_path, 15)
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path)] == [
        "step-000000000010.ckpt",
        "step-000000000015.ckpt",
    ]


def pickled(tmp_path, thing, write=torch.save):
    """Write a checkpoint with the right sums around what `thing` unpickles to."""
    data = io.BytesIO()
    write(thing, data)
    about = {
        "steps": 10,
        "bytes": len(data.getvalue()),
        "sha256": hashlib.sha256(data.getvalue()).hexdigest(),
    }
    lines = f"ssedb-checkpoint 2\n{json.dumps(about)}\n".encode()
    total = f"{hashlib.sha256(lines).hexdigest()}\n".encode()
    (tmp_path / "step-000000000010.ckpt").write_bytes(lines + total + data.getvalue())


@pytest.mark.parametrize("write", [torch.save, pickle.dump], ids=["torch", "pickle"])
@pytest.mark.filterwarnings("error")
def test_malicious_pickle_with_the_right_sums_has_no_effect(tmp_path, write):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    for thing in ({"x": Evil()}, Evil(), [Evil()]):
        pickled(tmp_path, thing, write)
        with pytest.raises(ConfigError, match=r"is damaged \(its data is not of tensors and plain"):
            checkpoint.load_latest(tmp_path)
    assert not (tmp_path / "owned").exists()
    pickled(tmp_path, [1, 2])
    with pytest.raises(ConfigError, match="its data is no state of a run"):
        checkpoint.load_latest(tmp_path)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("own") / "run"
    train(tiny_config(out, **SETTINGS))
    return out


def save_another(run, own, steps, **changes):
    """Put a checkpoint of a run with other settings, and of the same shapes, into a folder."""
    other = RunFolder.create(tiny_config(run.with_name("other"), **{**SETTINGS, **changes}))
    other.save_checkpoint(last_state(own), {"steps": steps, "updates": 1})
    other.close()
    (run / "checkpoints").mkdir(exist_ok=True)
    for path in checkpoint.list_checkpoints(other.checkpoints):
        shutil.copy(path, run / "checkpoints")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1}, "seed=1, and its config.toml says 0"),
        ({"gamma": 0.9}, "gamma=0.9, and its config.toml says 0.99"),
        ({"noise": "pixel"}, "noise=pixel, and its config.toml says none"),
        ({"bonus": "rnd", "bonus_options": {}}, "bonus=rnd, and its config.toml says db"),
        (
            {"bonus_options": {**TINY_OPTIONS, "tau": 0.5}},
            "tau=0.5, and its config.toml says 0.999",
        ),
        ({"policy_width": 16}, "policy_width=16, and its config.toml says 32"),
        ({"env": "rooms-tiny"}, "is of rooms-tiny but its config.toml says rooms-small"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_checkpoint_of_another_run_is_refused_in_one_line(tmp_path, own, changes, said):
    run = tmp_path / "run"
    shutil.copytree(own, run)
    shutil.rmtree(run / "checkpoints")
    save_another(run, own, 256, **changes)
    for use in (RunFolder.reopen, ssedb.load):
        with pytest.raises(ConfigError, match="put back the folder's own files") as error:
            use(run)
        assert said in str(error.value)
        assert "\n" not in str(error.value)


def test_checkpoint_of_another_run_is_not_fallen_back_on(tmp_path, own):
    run = tmp_path / "run"
    shutil.copytree(own, run)
    save_another(run, own, 0, seed=1)
    newest = checkpoint.list_checkpoints(run / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    with pytest.raises(ConfigError, match=r"is of a run with seed=1, and its config\.toml says 0"):
        resume(run)


def test_checkpoint_with_a_damaged_header_of_another_run_is_passed_over(tmp_path, own):
    """A flip in `steps` or `env` of the newest header is damage, not another run."""
    run = tmp_path / "run"
    shutil.copytree(own, run)
    newest = checkpoint.list_checkpoints(run / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes().replace(b'"rooms-small"', b'"rooms-smaln"', 1))
    result = resume(run)
    assert (result.steps, result.finished) == (256, True)
