"""Locks of folders: one owner, whatever happens to the file, and none in forked processes."""

import errno
import fcntl
import io
import os
import signal

import pytest

from ssedb.errors import ConfigError, FolderInUse
from ssedb.runs import lock
from ssedb.runs.lock import lock_folder


def test_lock_that_its_owner_removes_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """The owner ends, and removes folder and lock, between the opening of the file and its lock."""
    path = tmp_path / "run"
    owner = lock_folder(path, create=True)
    flock = fcntl.flock

    def ended_meanwhile(file, how):
        if not owner.closed:
            owner.close()
        flock(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", ended_meanwhile)
    held = lock_folder(path, create=True)
    monkeypatch.undo()
    assert held.holds
    with pytest.raises(FolderInUse):
        lock_folder(path, create=True)
    held.close()


def test_lock_that_fails_otherwise_says_why(tmp_path, monkeypatch):
    def refused(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", refused)
    with pytest.raises(ConfigError, match="No locks available") as error:
        lock_folder(tmp_path, create=False)
    assert not isinstance(error.value, FolderInUse)


def test_lock_that_is_a_link_is_refused_and_what_it_stands_for_kept(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / ".lock").symlink_to(tmp_path / "letter.txt")
    with pytest.raises(ConfigError, match="lock is no plain file"):
        lock_folder(tmp_path / "sweep", create=True)
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_lock_on_a_full_disk_leaves_no_folder(tmp_path, monkeypatch):
    class Full(io.TextIOWrapper):
        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock, "open", lambda path, *_, **__: Full(path.open("ab+")), raising=False)
    with pytest.raises(ConfigError, match="No space left on device"):
        lock_folder(tmp_path / "run", create=True)
    assert not (tmp_path / "run").exists()


def test_folder_that_its_owner_removes_meanwhile_is_made_anew(tmp_path, monkeypatch):
    path = tmp_path / "run"
    owner = lock_folder(path, create=True)

    def removed_meanwhile(path):
        monkeypatch.undo()
        owner.close()

    monkeypatch.setattr(lock, "make_folder", removed_meanwhile)
    held = lock_folder(path, create=True)
    assert held.holds
    held.close()


def test_lock_is_not_kept_by_a_forked_process_that_outlives_its_owner(tmp_path):
    held = lock_folder(tmp_path, create=False)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            os.write(theirs, b"x")
            signal.pause()
        finally:
            os._exit(0)
    try:
        os.read(ours, 1)
        with pytest.raises(FolderInUse):
            lock_folder(tmp_path, create=False)
        held.close()
        lock_folder(tmp_path, create=False).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
