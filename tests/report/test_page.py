"""The page as files: one, or a folder; hostile text stays text; nothing else is overwritten."""

import json
import re

import pytest

from ssedb.errors import ConfigError
from ssedb.report.page import Page, safe_json
from tests.report.conftest import HOSTILE_BONUS


def test_page_text_cannot_leave_the_json():
    hostile = {HOSTILE_BONUS: "<!--<script>", "amp": "&lt; \u2028 {{data}}"}
    text = safe_json(hostile)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == hostile
    with pytest.raises(ValueError, match="JSON compliant"):
        safe_json(float("nan"))


def embedded(html, name):
    return json.loads(
        re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)[1]
    )


def test_page_is_written_as_a_folder_or_as_a_file(tmp_path):
    page = Page({"title": HOSTILE_BONUS + " {{data}}", "runs": [], "episodes": []})
    page.add_picture("frames/0-seen.webp", b"picture")
    folder = page.write_folder(tmp_path / "folder")
    assert (tmp_path / "folder" / "frames" / "0-seen.webp").read_bytes() == b"picture"
    single = page.write_file(tmp_path / "one.html").read_text()
    for text in (folder.read_text(), single):
        assert embedded(text, "data")["title"] == HOSTILE_BONUS + " {{data}}"
        assert text.count("pwned=1</script>") == 0
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
    assert embedded(single, "pictures") == {
        "frames/0-seen.webp": "data:image/webp;base64,cGljdHVyZQ=="
    }
    assert " src=" not in single
    page.write_folder(tmp_path / "folder")  # a report may be replaced


def test_page_that_replaces_another_drops_its_pictures_only_when_it_is_written(
    tmp_path, monkeypatch
):
    old, new = Page({"title": "old"}), Page({"title": "new"})
    old.add_picture("frames/old.webp", b"old")
    new.add_picture("frames/new.webp", b"new")
    old.write_folder(tmp_path)
    frames = tmp_path / "frames"

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ssedb.runs.files.os.fsync", full)
        with pytest.raises(ConfigError, match="free some space there"):
            new.write_folder(tmp_path)
    assert [path.name for path in frames.iterdir()] == ["old.webp"]
    new.write_folder(tmp_path)
    assert [path.name for path in frames.iterdir()] == ["new.webp"]


def test_pictures_in_a_linked_folder_are_refused_and_left_alone(tmp_path):
    page = Page({"title": "page"})
    page.write_folder(tmp_path / "page")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "holiday.webp").touch()
    (tmp_path / "page" / "frames").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="frames is no plain file or folder"):
        page.write_folder(tmp_path / "page")
    assert (tmp_path / "mine" / "holiday.webp").exists()


def test_report_overwrites_nothing_else(tmp_path):
    page = Page({"title": "t"})
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match="is not a report"):
        page.write_folder(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        page.write_folder(tmp_path / "other")
    with pytest.raises(ConfigError, match="is a folder"):
        page.write_file(tmp_path / "other")
    assert (tmp_path / "index.html").read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot write"):
        page.write_folder(tmp_path / "index.html" / "deep")
