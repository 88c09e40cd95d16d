"""Commands that write into a run's folder, or beside it, write through no link that lies there."""

import os
import shutil

import pytest

import ssedb
from ssedb import cli
from ssedb.compare import write
from ssedb.runs import files
from tests.toy import tiny_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "run"
    ssedb.train(
        tiny_config(out, noise="random-box", steps=256, obs_norm_steps=64, max_episode_steps=20)
    )
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("eval RUN --episodes 1 --video", "videos"),
        ("eval RUN --episodes 1 --stills 2", "videos"),
        ("analyze spikes RUN", "spikes"),
        ("analyze tsne RUN", "tsne"),
        ("stats RUN --out RUN", "figures"),
    ],
)
def test_folder_that_is_a_link_is_refused_and_keeps_its_files(run, tmp_path, capsys, command, name):
    for module in ("av", "matplotlib", "sklearn"):
        pytest.importorskip(module)
    other = tmp_path / "other"
    other.mkdir()
    (other / "clip-99.mp4").touch()
    (run / name).symlink_to(other)
    assert cli.main(command.replace("RUN", str(run)).split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"ssedb: {run / name} is no plain file or folder")
    assert [path.name for path in other.iterdir()] == ["clip-99.mp4"]


def test_picture_that_is_a_link_is_replaced(run, tmp_path):
    pytest.importorskip("matplotlib")
    other = tmp_path / "thesis.txt"
    other.write_text("mine")
    (run / "probe.png").symlink_to(other)
    command = f"analyze probe {run} --transitions 128 --draws 2"
    assert cli.main(command.split()) == 0
    assert other.read_text() == "mine"
    assert (run / "probe.png").read_bytes().startswith(b"\x89PNG")


def test_traceback_replaces_a_link(run, tmp_path, capsys, monkeypatch):
    other = tmp_path / "letter.txt"
    other.write_text("mine")
    (run / "error.log").symlink_to(other)

    def disturb_frames(self, *args):
        raise RuntimeError("boom")

    monkeypatch.setattr("ssedb.noises.random_box.RandomBox.disturb_frames", disturb_frames)
    assert cli.main(["eval", str(run), "--episodes", "1"]) == 1
    assert "RandomBox.disturb_frames raised RuntimeError: boom" in capsys.readouterr().err
    assert other.read_text() == "mine"
    assert "boom" in (run / "error.log").read_text()


def test_tables_of_others_are_left_alone(run, tmp_path, capsys):
    (tmp_path / "tables.md").write_text("mine")
    assert cli.main(["stats", str(run), "--out", str(tmp_path), "--no-figures"]) == 2
    assert "tables.md was not written by ssedb; choose another --out" in capsys.readouterr().err
    assert (tmp_path / "tables.md").read_text() == "mine"


def test_tables_that_found_no_space_are_written_by_the_next_try(run, tmp_path, monkeypatch):
    command = ["stats", str(run), "--out", str(tmp_path / "stats"), "--no-figures"]
    written, whole = [], files.write_whole

    def full_after_one(path, *chunks):
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        whole(path, *chunks)

    with monkeypatch.context() as patched:
        for module in (files, write):
            patched.setattr(module, "write_whole", full_after_one)
        assert cli.main(command) == 2
    assert len(list((tmp_path / "stats").iterdir())) == 1
    assert cli.main(command) == 0


def test_backup_by_hard_links_stays_as_it_was(run, tmp_path):
    backup = tmp_path / "backup"
    shutil.copytree(run, backup, copy_function=os.link)
    before = {path: path.read_bytes() for path in backup.rglob("*.jsonl")}
    assert len(before) == 2
    ssedb.resume(run, steps=512)
    assert {path: path.read_bytes() for path in backup.rglob("*.jsonl")} == before
    assert len((run / "metrics.jsonl").read_bytes()) > len(before[backup / "metrics.jsonl"])
