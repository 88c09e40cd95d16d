"""A browser, and pages opened in it."""

import shutil
from pathlib import Path

import pytest

from ssedb.report.make import build_page
from tests.report.conftest import HOSTILE

ALLOWED = ("file:", "data:")


@pytest.fixture(scope="package")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no Chromium here; `apt-get install chromium` brings it")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; `make setup` brings it"
    )
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def report(runs, tmp_path_factory):
    """The runs as a folder and as one file."""
    out = tmp_path_factory.mktemp("pages")
    page = build_page((runs,), episodes=2, title=HOSTILE, device="cpu")
    page.write_folder(out / "folder")
    page.write_file(out / "one.html")
    return out


@pytest.fixture
def open_page(browser):
    """Opens a page that must not complain, nor ask for anything but files."""
    contexts, troubles = [], []

    def open_it(path: Path, view="", width=1280, height=900, **settings):
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        context.set_default_timeout(8000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: troubles.append(str(e)))
        page.on("request", lambda r: None if r.url.startswith(ALLOWED) else troubles.append(r.url))
        page.goto(f"file://{path}#{view}")
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert troubles == []
