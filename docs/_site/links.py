"""Hook of the site: pages and files from outside of docs/, and the links to them.

On the repository a page links to `../ssedb/ppo.py`. The site has no repository beside it, so every
such file becomes a page of the site (a table of contents for a folder), and the link leads there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
"""Pages of the repository's root that are pages of the site."""
LANGUAGES = {".py": "python", ".toml": "toml", ".js": "javascript", ".yml": "yaml", "": "text"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")

_original: dict[str, str] = {}
"""Path in the repository of each page that does not lie in docs/, by its path in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and everything that pages link to outside of docs/."""
    _original.clear()
    for name in PROJECT:
        _add(files, config, name, name, (ROOT / name).read_text(encoding="utf-8"))
    waiting = [file.src_uri for file in files.documentation_pages()]
    while waiting:
        uri = waiting.pop()
        for target in map(_outside, _targets(files.src_uris[uri])):
            if target and target not in _original.values():
                waiting += _add_source(files, config, target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where their files are in the site."""
    home = posixpath.dirname(_repository_path(page.file.src_uri))
    here = posixpath.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        found = posixpath.normpath(posixpath.join(home, link[0]))
        return posixpath.relpath(_site_path(found), here or ".")

    return LINK.sub(moved, markdown)


def _targets(file: File) -> list[str]:
    """Return the paths in the repository that a page links to."""
    home = posixpath.dirname(_repository_path(file.src_uri))
    return [
        posixpath.normpath(posixpath.join(home, link)) for link in LINK.findall(file.content_string)
    ]


def _outside(target: str) -> str | None:
    """Return a path that exists outside of docs/ and is no page of the site yet, else None."""
    inside = target.startswith("docs/") or target in ("docs", "README.md", *PROJECT)
    return None if inside or not (ROOT / target).exists() else target


def _repository_path(uri: str) -> str:
    return _original.get(uri, f"docs/{uri}")


def _site_path(path: str) -> str:
    """Return where a file of the repository is in the site."""
    if path in ("README.md", "docs"):
        return "index.md"
    if path in PROJECT:
        return path
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return next((uri for uri, original in _original.items() if original == path), path)


def _add_source(files: Files, config: MkDocsConfig, target: str) -> list[str]:
    """Add a file or folder of the repository; return the new pages, which may have links."""
    path, uri = ROOT / target, f"source/{target}"
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if not p.name.startswith(("_", ".")))
        rows = [f"- [{p.name}]({path.name}/{p.name})" for p in inside]
        text = f"# {target}/\n\n" + "\n".join(rows) + "\n"
        return [_add(files, config, f"{uri}.md", target, text)]
    if path.suffix == ".md":
        return [_add(files, config, uri, target, path.read_text(encoding="utf-8"))]
    if path.suffix in LANGUAGES:
        code = path.read_text(encoding="utf-8")
        text = f"# {target}\n\n~~~~{LANGUAGES[path.suffix]}\n{code}\n~~~~\n"
        return [_add(files, config, f"{uri}.md", target, text)]
    files.append(File.generated(config, uri, content=path.read_bytes()))
    _original[uri] = target
    return []


def _add(files: Files, config: MkDocsConfig, uri: str, original: str, text: str) -> str:
    level = InclusionLevel.INCLUDED
    if uri.startswith("source/"):
        level = InclusionLevel.NOT_IN_NAV
        text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
    files.append(File.generated(config, uri, content=text, inclusion=level))
    _original[uri] = original
    return uri
