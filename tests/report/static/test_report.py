"""report.js in a browser: views, hostile names, keyboard, contrast, themes, screens."""

import re

import pytest

from ssedb.report.page import SCRIPTS
from tests.report.conftest import HOSTILE, HOSTILE_BONUS
from tests.report.static.screen import VIEWS


@pytest.mark.parametrize("kind", ["folder/index.html", "one.html"])
def test_views_all_open(report, open_page, kind):
    page = open_page(report / kind)
    assert [a.inner_text() for a in page.query_selector_all("#nav a")] == [
        "Overview", "Curves", "Episodes", "Information plane", "Rooms", "Runs"
    ]  # fmt: skip
    for view, heading in VIEWS.items():
        page.click(f'#nav a[href="#{view}"]')
        section = page.wait_for_selector(f"#view-{view}:visible h2")
        assert section.inner_text() == heading
        assert (
            page.query_selector('#nav a[aria-current="page"]').get_attribute("href") == f"#{view}"
        )
        assert page.locator("main > section:visible").count() == 1


def test_hostile_names_are_shown_as_text(report, open_page):
    page = open_page(report / "folder" / "index.html")
    assert page.inner_text("h1") == HOSTILE
    assert HOSTILE in page.inner_text("#view-overview")
    assert "<b>bonus_loss is nan</b>" in page.inner_text("#view-overview")
    page.click("text=Runs >> nth=-1")
    for view in VIEWS:
        page.goto(re.sub("#.*", "", page.url) + "#" + view)
    assert HOSTILE_BONUS in page.inner_text("#view-runs")
    assert page.evaluate("typeof pwned") == "undefined"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2 + len(
        SCRIPTS
    )  # the page's own: two of data, the rest code


def test_keyboard_alone_reaches_everything(report, open_page):
    page = open_page(report / "one.html")
    focused = (
        "document.activeElement.textContent || document.activeElement.getAttribute('aria-label')"
    )
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Theme: auto"
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Episodes"
    page.keyboard.press("Enter")
    page.wait_for_selector("#view-episodes:visible")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.ariaLabel"
                " || document.activeElement.parentElement.textContent"
            )
        )
    for name in (
        "Step of the episode",
        "Play or pause (space)",
        "Show the frame without the noise (C)",
    ):
        assert name in reached
    assert any(name.startswith("Map of the episode in db") for name in reached)


NAMED = """() => [...document.querySelectorAll(
    'main > section:not([hidden]) :is(button, select, input, canvas, svg[role])')]
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
  .map(e => e.outerHTML.slice(0, 120))"""

CONTRAST = """() => {
  const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = (rgb) => 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll('header *, main > section:not([hidden]) *, footer')) {
    if (!e.checkVisibility() || e.disabled) continue;
    if (e.closest('[aria-pressed=false].toggle') || e.closest('.skip')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const ink = getComputedStyle(e)[e.namespaceURI.endsWith('svg') ? 'fill' : 'color'];
    const a = light(parse(ink)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([e.textContent.slice(0, 40), ratio]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_accessible_names_contrast_and_themes(report, open_page, scheme):
    page = open_page(report / "one.html", color_scheme=scheme)
    assert page.get_attribute("html", "data-theme") == scheme
    for view in VIEWS:
        page.click(f'#nav a[href="#{view}"]')
        page.wait_for_selector(f"#view-{view}:visible h2")
        assert page.evaluate(NAMED) == []
        assert page.evaluate(CONTRAST) == []
    other = {"light": "dark", "dark": "light"}[scheme]
    while page.get_attribute("html", "data-theme") != other:
        page.click("#theme")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [360, 820, 1920])
def test_page_fits_phone_tablet_and_wide_screen(report, open_page, width):
    page = open_page(report / "one.html", width=width, height=800)
    for view in VIEWS:
        page.goto(re.sub("#.*", "", page.url) + "#" + view)
        page.wait_for_selector(f"#view-{view}:visible h2")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
