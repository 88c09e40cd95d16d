"""Files are whole or not there, and results do not lie among other people's files."""

import os

import pytest

from ssedb.errors import ConfigError
from ssedb.reading import read_json
from ssedb.runs.files import (
    make_folder,
    refuse_links,
    refuse_other_files,
    write_json,
    write_whole,
)


def test_write_whole_on_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_whole(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_write_whole_beside_a_link_of_others_leaves_what_it_stands_for(tmp_path):
    (tmp_path / "other.txt").write_text("of another")
    (tmp_path / ".summary.json.part").symlink_to(tmp_path / "other.txt")
    write_whole(tmp_path / "summary.json", "new")
    assert (tmp_path / "other.txt").read_text() == "of another"
    assert (tmp_path / "summary.json").read_text() == "new"
    assert not (tmp_path / "summary.json").is_symlink()


def test_refuse_links_names_a_link_or_a_pipe_and_lets_files_and_folders_pass(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    refuse_links(tmp_path, "file", "folder", "missing")
    os.mkfifo(tmp_path / "pipe")
    for name, target in (("link", "file"), ("link to a folder", "folder"), ("dangling", "gone")):
        (tmp_path / name).symlink_to(tmp_path / target)
    for name in ("link", "link to a folder", "dangling", "pipe"):
        with pytest.raises(ConfigError, match=f"{name} is no plain file or folder, .*; copy what"):
            refuse_links(tmp_path, "file", name)


def test_read_json_returns_what_write_json_wrote_and_nothing_of_a_broken_file(tmp_path):
    path = tmp_path / "probe.json"
    write_json(path, {"run": tmp_path, "share": 0.5})
    assert read_json(path) == {"run": str(tmp_path), "share": 0.5}
    for text in ("{", "[1]", ""):
        path.write_text(text)
        assert read_json(path) == {}
    assert read_json(tmp_path / "missing.json") == {}


def test_make_folder_below_a_file_is_a_mistake_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write to .*: Not a directory; choose a path"):
        make_folder(tmp_path / "file" / "run")


def test_refuse_other_files_names_the_first_that_is_neither_ours_nor_hidden(tmp_path):
    for name in (".lock", "log.txt"):
        (tmp_path / name).touch()
    refuse_other_files(tmp_path, own="config.toml", ignore=("log.txt",))
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"holds other files \(thesis.tex\)"):
        refuse_other_files(tmp_path, own="config.toml", ignore=("log.txt",))
    (tmp_path / "config.toml").touch()
    refuse_other_files(tmp_path, own="config.toml")
