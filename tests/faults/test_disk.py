"""A full disk: one line with the remedy, old files intact, and the run goes on afterwards."""

import contextlib
import errno
import os
import resource
import shutil
import signal

import pytest

from ssedb import cli
from ssedb.errors import TrainingError
from ssedb.runs.folder import RunFolder
from ssedb.runs.loop import resume
from ssedb.runs.maps import MapLog
from tests.faults.forks import SMALL, ended, forked, last_state, numbers, same, small_run
from tests.helpers import Notes
from tests.toy import tiny_config


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    small_run(out)
    return out


@pytest.mark.parametrize(
    ("bytes_left", "name"), [(20_000, ".ckpt"), (2_600, "maps.jsonl"), (2_600, "metrics.jsonl")]
)
def test_full_disk_is_one_line_and_the_run_can_be_resumed(tmp_path, whole, bytes_left, name):
    """No file may grow beyond a number of bytes: it meets checkpoints, maps or metrics first."""
    out = tmp_path / "run"
    small_run(out, steps=32)
    flags = ["--checkpoint-minutes", "60"] if "jsonl" in name else []

    def go_on():
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if name == "metrics.jsonl":
            MapLog.record = lambda self: None  # maps are longer
        with open(tmp_path / "said", "w") as said, contextlib.redirect_stderr(said):
            code = cli.main(["train", "--resume", str(out), "--steps", "128", *flags])
        os._exit(code)

    (out / "tb").rename(tmp_path / "tb")  # its files are longer
    assert ended(forked(go_on)) == 1
    errors = [line for line in (tmp_path / "said").read_text().splitlines() if "ssedb:" in line]
    assert len(errors) == 1, errors
    assert (
        f"{name}: File too large; once that is mended, resume the run; saved at step 32"
        in (errors[0])
    )
    assert "Traceback" not in (tmp_path / "said").read_text()
    assert not list(out.rglob(".*.part"))
    resume(out, steps=128)
    assert numbers(out) == numbers(whole)
    assert same(last_state(out), last_state(whole))


def test_losing_tensorboard_alone_does_not_end_the_run(tmp_path, whole, monkeypatch):
    from torch.utils.tensorboard.writer import SummaryWriter

    def full(self, *args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", full)
    small_run(tmp_path / "run", progress=(notes := Notes()))
    without = "the run goes on without its curves"
    assert notes.notes == [
        f"cannot write {tmp_path / 'run' / 'tb'}: No space left on device; {without}"
    ]
    assert numbers(tmp_path / "run") == numbers(whole)


def test_tensorboard_folder_that_cannot_be_made_does_not_end_the_run(tmp_path):
    out = tmp_path / "run"
    small_run(out, steps=32)
    shutil.rmtree(out / "tb")
    (out / "tb").write_text("a file")
    result = resume(out, notes := Notes(), steps=64)
    assert result.finished
    assert any("the run goes on without its curves" in note for note in notes.notes)


def test_summary_that_cannot_be_written_is_one_line(tmp_path):
    run = RunFolder.create(tiny_config(tmp_path / "run", **SMALL))
    (tmp_path / "run" / "summary.json").mkdir()
    with pytest.raises(TrainingError, match=r"cannot write .*summary\.json: Is a directory; once"):
        run.write_summary({"finished": True})
    run.close()
