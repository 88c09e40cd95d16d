"""The page as files. Names from run folders reach it as JSON alone, and its policy forbids more."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from ssedb import __version__
from ssedb.errors import ConfigError
from ssedb.runs.files import cannot_write, refuse_links, write_whole

SCRIPTS = (
    "base.js",
    "lines.js",
    "shapes.js",
    "widgets.js",
    "overview.js",
    "curves.js",
    "explorer.js",
    "information.js",
    "rooms.js",
    "runs.js",
    "report.js",
)
STYLE = "report.css"
MARK = '<meta name="generator" content="ssedb report">'


class Page:
    """Data and pictures that become one folder, or one file."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = {"version": __version__, **data}
        self._pictures: dict[str, bytes] = {}

    def add_picture(self, name: str, content: bytes) -> str:
        """Add a WebP picture; return the name by which the data may speak of it."""
        self._pictures[name] = content
        return name

    def write_folder(self, folder: Path) -> Path:
        """Write `index.html` with its scripts, style and pictures beside it."""
        refuse_to_overwrite(folder / "index.html")
        refuse_links(folder, "frames")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in (*SCRIPTS, STYLE):
                write_whole(folder / name, _static(name))
            for name, content in self._pictures.items():
                (folder / name).parent.mkdir(exist_ok=True)
                write_whole(folder / name, content)
            tags = "".join(f'<script defer src="{name}"></script>\n' for name in SCRIPTS)
            policy = (
                "default-src 'none'; img-src 'self' data: file:; "
                "style-src 'self' file:; script-src 'self' file:"
            )
            text = self._html(policy, f'<link rel="stylesheet" href="{STYLE}">\n', tags, {})
            write_whole(folder / "index.html", text)
            # Last: on a full disk an older page keeps its pictures.
            for old in set(folder.glob("frames/*.webp")) - {folder / n for n in self._pictures}:
                old.unlink()
        except OSError as error:
            raise cannot_write(folder, error) from None
        return folder / "index.html"

    def write_file(self, path: Path) -> Path:
        """Write everything into one HTML file."""
        refuse_to_overwrite(path)
        script = "\n".join(_static(name) for name in SCRIPTS)
        style = _static(STYLE)
        hashes = (_base64(hashlib.sha256(text.encode()).digest()) for text in (style, script))
        allowed = "style-src 'sha256-{}'; script-src 'sha256-{}'".format(*hashes)
        policy = f"default-src 'none'; img-src data:; {allowed}"
        webp = "data:image/webp;base64,"
        pictures = {name: webp + _base64(data) for name, data in self._pictures.items()}
        tags = f"<style>{style}</style>\n", f"<script>{script}</script>\n"
        text = self._html(policy, *tags, pictures)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise cannot_write(path, error) from None
        return path

    def _html(self, policy: str, style: str, scripts: str, pictures: dict[str, str]) -> str:
        parts = {
            "mark": MARK,
            "policy": html.escape(policy),
            "style": style,
            "title": html.escape(str(self.data["title"])),
            "scripts": scripts,
            "pictures": safe_json(pictures),
            "data": safe_json(self.data),
        }
        # In one pass: a name that looks like a placeholder stays a name.
        return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], _static("page.html"))


def safe_json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in; raise ValueError for NaN."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def refuse_to_overwrite(path: Path) -> None:
    """Raise ConfigError if there is anything but an older page."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; choose another --out")
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")[:4000]:
        raise ConfigError(f"{path} exists and is not a report; choose another --out")
    folder = path.parent
    fresh = path.name == "index.html" and not path.exists()
    if fresh and folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds other files; choose an empty or a new folder for --out")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _static(name: str) -> str:
    return (files("ssedb.report") / "static" / name).read_text(encoding="utf-8")
