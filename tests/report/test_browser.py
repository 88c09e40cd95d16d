"""The page as a reader meets it: in a browser, offline, with mouse and keyboard, on a phone and on a wide screen."""

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ssedb import cli
from ssedb.report.make import build_page
from ssedb.report.page import SCRIPTS
from tests.helpers import log_sick_policy, make_run
from tests.report.conftest import HOSTILE, HOSTILE_BONUS

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here; `apt-get install chromium` brings it"
)
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed; `make setup` brings it"
)

VIEWS = {
    "overview": "Overview",
    "curves": "Curves",
    "episodes": "Episode explorer",
    "information": "Information plane",
    "rooms": "Rooms",
    "runs": "Runs",
}
ALLOWED = ("file:", "data:")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
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


def data_of(page):
    return page.evaluate("data")


def pixels(page, selector):
    """What a canvas shows, int [H, W, 3]."""
    found = page.eval_on_selector(
        selector,
        "c => ({w: c.width, h: c.height, d: Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)})",
    )
    return np.array(found["d"], int).reshape(found["h"], found["w"], 4)[..., :3]


def picture(page, selector):
    return page.eval_on_selector(selector, "c => c.toDataURL()")


def count_colour(page, selector, colour, near=40):
    """How many pixels of a canvas are about that colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    count = """(c, [r, g, b, near]) => {
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let n = 0;
      for (let i = 0; i < d.length; i += 4)
        n += d[i + 3] > 127 && Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) + Math.abs(d[i + 2] - b) < near;
      return n;
    }"""
    return page.eval_on_selector(selector, count, [*wanted, near])


def until(page, expression, seconds=10):
    """Waits for something to become true; the page's policy forbids Playwright's own way, which evaluates text in it."""
    for _ in range(20 * seconds):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def pick(page, label, option):
    page.get_by_label(label, exact=True).select_option(option)


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


def test_overview_ranks_the_tasks_under_a_noise(noisy_games, tmp_path, open_page):
    build_page((noisy_games,), episodes=0, title="games", device="cpu").write_file(
        tmp_path / "one.html"
    )
    page = open_page(tmp_path / "one.html")
    first = "#view-overview table >> nth=0 >> tbody tr >> nth=0"
    assert page.inner_text(first).startswith("rnd")
    pick(page, "Tasks", "under random-box")
    assert "human-normalised score, under random-box" in page.inner_text("#view-overview h3")
    assert page.inner_text(first).startswith("db")


def test_overview_marks_what_did_not_finish(report, open_page):
    page = open_page(report / "one.html")
    notice = page.inner_text("#view-overview .notice >> nth=0")
    assert "4 of 11 runs did not finish" in notice
    for text in (
        "unfinished stopped",
        "failed",
        "missing planned: planned, not begun",
        "damaged damaged",
    ):
        assert text in re.sub(r"\s+", " ", notice)
    assert "shut: value_loss" in page.inner_text("#view-overview")
    assert "collapse alarm in shut" in page.inner_text("#view-overview")
    measure = next(m for m in data_of(page)["measures"] if m["key"] == "states_share")
    rows = [
        r.inner_text().split("\t")
        for r in page.query_selector_all("#view-overview table >> nth=0 >> tbody tr")
    ]
    assert [r[0] for r in rows] == [r["method"] for r in measure["ranking"]]
    assert float(rows[0][1]) == pytest.approx(measure["ranking"][0]["iqm"], rel=1e-3)
    assert page.locator("#view-overview svg[role=img] circle").count() == len(measure["ranking"])
    assert "1 left out" in page.inner_text("#view-overview")
    pick(page, "Measure", "entropy of visits (nats)")
    assert "Ranking: entropy of visits" in page.inner_text("#view-overview")


def test_curves_are_read_zoomed_and_hidden(report, open_page):
    page = open_page(report / "one.html", "curves")
    data = data_of(page)
    assert page.locator("#view-curves section").count() == 2
    assert "Without values of this metric: ?, ?" in page.inner_text(
        "#view-curves"
    )  # the damaged run's unknown task
    boxes = "#view-curves section:has(h3:text('rooms-small, random-box')) canvas"
    blue, vermilion = "#0072b2", "#d55e00"
    before = count_colour(page, boxes, blue)
    assert before > 300
    page.click("#view-curves button.toggle:text-is('db')")
    assert count_colour(page, boxes, blue) < before / 10
    assert count_colour(page, boxes, vermilion) > 300
    page.click("#view-curves button.toggle:text-is('db')")
    assert count_colour(page, boxes, blue) == before

    box = page.locator(boxes).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 13, box["y"] + 120)
    tip = page.inner_text("#view-curves .tip")
    finished = [
        r
        for r in data["runs"]
        if (r["noise"], r["method"], r["status"]) == ("random-box", "db", "finished")
    ]
    mean = sum(r["curves"]["states_share"]["y"][-1] for r in finished) / len(finished)
    shown = float(re.search(r"db, mean of 3: ([\d.]+)", tip)[1])
    assert shown == pytest.approx(mean, rel=0.02)
    assert tip.startswith("25")

    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 330, box["y"] + 110, steps=4)
    page.mouse.up()
    zoomed = page.get_attribute(boxes, "data-view")
    low, high = map(float, zoomed.split(" to "))
    assert 64 < low < high < 256
    page.dblclick(boxes)
    assert page.get_attribute(boxes, "data-view") == "whole"

    page.focus(boxes)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert re.match(r"\d+ steps; .*db, mean of 3: 0\.\d+", page.inner_text("#live"))
    page.keyboard.press("+")
    assert page.get_attribute(boxes, "data-view") != "whole"
    page.keyboard.press("0")
    assert page.get_attribute(boxes, "data-view") == "whole"

    page.click("#view-curves button.toggle:text-is('random-box')")
    assert page.locator(boxes).count() == 0
    page.click("#view-curves button.toggle:text-is('random-box')")
    before = picture(page, boxes)
    pick(page, "Figure", "entropy of the policy (nats)")
    assert picture(page, boxes) != before
    page.uncheck("#view-curves input[type=checkbox]")
    page.click("#view-curves section:has(h3:text('rooms-small, random-box')) summary")
    assert "unfinished" in page.inner_text("#view-curves section table")


def frame_of(data, pictures, episode, kind, step):
    """A frame as it is stored in the page, int [H, W, 3]."""
    from PIL import Image

    frames = data["episodes"][episode]["frames"]
    picture = Image.open(
        io.BytesIO(base64.b64decode(pictures[frames[kind]].split(",")[1]))
    ).convert("RGB")
    height, width = frames["size"]
    row, column = divmod(frames["steps"].index(step), frames["columns"])
    box = (column * width, row * height, (column + 1) * width, (row + 1) * height)
    return np.asarray(picture.crop(box), int)


def test_explorer_links_frame_curve_spikes_and_maps(report, open_page):
    page = open_page(report / "one.html", "episodes")
    data, pictures = data_of(page), page.evaluate("pictures")
    episode = data["episodes"][0]
    assert episode["noise"] == "random-box"
    stage, curve, point = ".stage canvas", ".explorer .chart:not(.points) canvas", ".points canvas"

    def check(step, kind="seen"):
        assert page.inner_text(".readout").startswith(f"Step {step} of 99")
        assert page.input_value(".player input[type=range]") == str(step)
        assert page.get_attribute(point, "data-step") == str(step)
        assert f"at step {step}" in page.get_attribute(stage, "aria-label")
        assert f"{episode['traces'][0]['bonus'][step]:.4g}" in page.inner_text(".readout")
        shown = pixels(page, stage)
        assert np.abs(shown - frame_of(data, pictures, 0, kind, step)).mean() < 4
        other = frame_of(data, pictures, 0, kind, (step + 50) % 100)
        assert np.abs(shown - other).mean() > 2

    until(
        page,
        "document.querySelector('.stage canvas').getContext('2d').getImageData(40, 40, 1, 1).data[3] > 0",
    )
    check(0)
    places = set()
    for step in (10, 63):  # along the slider
        page.fill(".player input[type=range]", str(step))
        check(step)
        places.add(page.get_attribute(point, "data-at"))
    assert len(places) == 2  # the marked point has moved
    box = page.locator(
        curve
    ).bounding_box()  # along the curve: steps 0 to 99 between the axis and the right edge
    page.mouse.click(box["x"] + 58 + (box["width"] - 70) * 40 / 99, box["y"] + 100)
    check(40)
    assert count_colour(page, curve, "#d55e00") > 40  # the cursor is drawn

    page.click(".spikes button >> nth=0")
    spike = episode["traces"][0]["spikes"][0]["step"]
    check(spike)
    assert page.get_attribute(".spikes button >> nth=0", "aria-current") == "true"
    page.fill(".player input[type=range]", "80")
    x, y = map(float, page.get_attribute(point, "data-at").split(","))
    page.fill(".player input[type=range]", "0")
    page.locator(point).first.scroll_into_view_if_needed()
    box = page.locator(point).first.bounding_box()
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert re.search(r"step \d+", page.inner_text(".points .tip"))
    page.mouse.click(box["x"] + x, box["y"] + y)
    steps = int(page.get_attribute(point, "data-step"))
    assert abs(float(page.get_attribute(point, "data-at").split(",")[0]) - x) <= 3
    check(steps)

    page.click("text=Without noise")
    check(steps, "clean")
    assert page.get_attribute("button.choice", "aria-pressed") == "true"
    page.click("text=Without noise")

    pick(page, "compared with", episode["traces"][1]["name"])
    assert page.locator(".maps .panel").count() == 3
    names = [r["name"] for r in episode["traces"]]
    assert all(name in page.inner_text(".readout") for name in names[:2])
    assert count_colour(page, curve, "#0072b2") > 100
    pick(page, "Bonus", names[1])
    pick(page, "compared with", "nothing")
    assert page.inner_text(".maps h3 >> nth=0").startswith(names[1])
    pick(page, "Episode", str(1))
    assert page.inner_text(".readout").startswith("Step 0")


def test_explorer_plays_and_takes_keys(report, open_page):
    page = open_page(report / "one.html", "episodes")
    spikes = [s["step"] for s in data_of(page)["episodes"][0]["traces"][0]["spikes"]]

    def step():
        return int(re.match(r"Step (\d+)", page.inner_text(".readout"))[1])

    page.click("h2")
    for key, expected in (
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 11),
        ("ArrowLeft", 10),
        ("End", 99),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert step() == expected
    page.keyboard.press("n")
    assert step() == spikes[0]
    page.keyboard.press("End")
    page.keyboard.press("p")
    assert step() == max(s for s in spikes if s < 99)
    page.keyboard.press("c")
    assert "without the noise" in page.get_attribute(".stage canvas", "aria-label")
    page.keyboard.press("Home")
    pick(page, "Speed", "4")
    page.click("h2")
    page.keyboard.press("Space")
    until(page, "parseInt(document.querySelector('.readout b').textContent.slice(5)) > 12")
    assert "Pause" in page.inner_text("button.main")
    page.keyboard.press("Space")
    stopped = step()
    page.wait_for_timeout(200)
    assert step() == stopped
    page.click("button.main")
    until(page, "document.querySelector('.readout b').textContent === 'Step 99'")
    until(page, "document.querySelector('button.main').textContent.includes('Play')")
    for name, expected in (
        ("First step", 0),
        ("One step on", 1),
        ("One step back", 0),
        ("Last step", 99),
    ):
        page.click(f"button[title^='{name}']")
        assert step() == expected


def test_overview_and_runs_name_the_alarms_of_policies(open_page, tmp_path):
    make_run(tmp_path / "runs" / "well")
    log_sick_policy(make_run(tmp_path / "runs" / "sick", seed=1))
    command = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page"), "--episodes", "0"]
    assert cli.main(command) == 0
    page = open_page(tmp_path / "page" / "index.html")
    notice = page.inner_text("#view-overview .notice.bad")
    assert "policy alarm the policy does not follow its bonus in" in notice
    assert "sick: explained variance of the value -0.50: it has been under 0 for" in notice
    assert "well" not in notice
    page = open_page(tmp_path / "page" / "index.html", "runs")
    rows = page.locator("#view-runs details.run summary").all_inner_texts()
    assert ["policy alarm" in row for row in rows] == ["sick" in row for row in rows]


def test_information_plane_tells_the_three_states_apart(bottlenecks, open_page, tmp_path):
    ends = dict(shut=(0.004, -0.01), young=(20.0, -1.5), grown=(20.0, 2.0))
    for shown in (["grown"], ["grown", "young"], ["grown", "young", "shut"]):
        root = bottlenecks(**{name: ends[name] for name in shown})
        out = tmp_path / f"report-{len(shown)}"
        assert cli.main(["report", str(root), "--out", str(out), "--episodes", "0"]) == 0
        notice = open_page(out / "index.html", "information").locator("#view-information .notice")
        text = notice.inner_text()
        assert ("the bottleneck is open at the end of every run" in text) == (shown == ["grown"])
        assert ("young: I_upper 20, I_nce 1.5 below chance" in text) == ("young" in shown)
        assert ("collapse alarm" in text) == ("shut" in shown)
        assert "grown" not in text
        colours = {1: "notice good", 2: "notice", 3: "notice bad"}
        assert notice.get_attribute("class").strip() == colours[len(shown)]
        shutil.rmtree(root)


def test_information_plane_marks_its_alarm(report, open_page):
    page = open_page(report / "one.html", "information")
    alarm = page.inner_text("#view-information .notice")
    assert "collapse alarm" in alarm
    assert re.search(r"shut: I_upper 0\.004, I_nce 0\.01 below chance", alarm)
    assert "less than 0.1 nats" in alarm
    labels = [
        c.get_attribute("aria-label") for c in page.query_selector_all("#view-information canvas")
    ]
    for word in (
        "Information plane",
        "I_upper",
        "I_pred",
        "I_nce",
        "rank of z",
        "rank of the encoded states",
    ):
        assert any(word in label for label in labels)
    plane = "#view-information canvas >> nth=0"
    assert count_colour(page, plane, "#0072b2") > 20
    page.click("#view-information button.toggle")
    assert count_colour(page, plane, "#0072b2") == 0
    page.click("#view-information button.toggle")
    pick(page, "Task", "rooms-small, no noise")
    for _ in range(100):  # the canvas of another task is drawn a moment later
        if drawn := count_colour(page, "#view-information canvas >> nth=1", "#0072b2") > 20:
            break
        page.wait_for_timeout(50)
    assert drawn


def test_rooms_maps_move_with_the_slider(report, open_page):
    page = open_page(report / "one.html", "rooms")
    heat, slider = "#view-rooms canvas >> nth=0", "#view-rooms input[type=range]"
    pick(page, "Task", "rooms-small, random-box")
    assert page.locator("#view-rooms canvas").count() == 2
    assert page.get_attribute(heat, "data-steps") == "256"
    blank = count_colour(page, heat, "#ffffff", 1)
    page.fill(slider, "0")
    assert page.get_attribute(heat, "data-steps") == "0"
    assert "after 0 steps" in page.inner_text("#view-rooms")
    assert count_colour(page, heat, "#ffffff", 1) > blank + 1000  # cells that were not visited yet
    early = picture(page, heat)
    page.click("#view-rooms button:text-is('Bonus')")
    assert picture(page, heat) != early
    assert "bonus of db by cell after 0 steps" in page.get_attribute(heat, "aria-label")
    pick(page, "Seed", "1")
    assert "db, seed 1" in page.inner_text("#view-rooms")
    page.hover(heat)
    page.click("#view-rooms button:has-text('Play')")
    until(page, "Number(document.querySelector('#view-rooms input[type=range]').value) > 4")
    page.click("#view-rooms button:has-text('Pause')")
    assert "Without snapshots" in page.inner_text("#view-rooms")
    assert "stopped" in page.inner_text("#view-rooms p:has-text('Without snapshots')")


def test_runs_are_filtered_and_their_command_copied(report, open_page):
    page = open_page(report / "one.html", "runs", permissions=["clipboard-read", "clipboard-write"])
    assert page.locator("details.run").count() == 11
    page.fill("input[type=search]", "random-box rnd")
    assert page.locator("details.run").count() == 2
    page.click("details.run >> nth=0")
    command = page.inner_text("details.run pre")
    assert command.startswith("ssedb train --env rooms-small --noise random-box --bonus rnd")
    page.click("text=Copy the command")
    page.wait_for_selector("button:text-is('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == command
    inside = page.inner_text("details.run .inside")
    for word in ("torch", "rollout_steps", "feature_dim", "num_envs"):
        assert word in inside
    page.fill("input[type=search]", "")
    pick(page, "Status", "failed")
    assert page.locator("details.run").count() == 1
    page.click("details.run")
    assert "cannot be read by this version" in page.inner_text("details.run .inside")


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
                "document.activeElement.ariaLabel || document.activeElement.parentElement.textContent"
            )
        )
    for name in (
        "Step of the episode",
        "Play or pause (space)",
        "Show the frame without the noise (C)",
    ):
        assert name in reached
    assert any(name.startswith("Map of the episode in db") for name in reached)


NAMED = """() => [...document.querySelectorAll('main > section:not([hidden]) :is(button, select, input, canvas, svg[role])')]
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
  .map(e => e.outerHTML.slice(0, 120))"""
CONTRAST = """() => {
  const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = (rgb) => 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll('header *, main > section:not([hidden]) *, footer')) {
    if (!e.checkVisibility() || e.closest('[aria-pressed=false].toggle') || e.disabled || e.closest('.skip')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const ink = getComputedStyle(e)[e.namespaceURI.endsWith('svg') ? 'fill' : 'color'];
    const a = light(parse(ink)), b = light(ground(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
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
def test_page_fits_phone_tablet_and_wide_screen(report, open_page, width, tmp_path):
    page = open_page(report / "one.html", width=width, height=800)
    for view in VIEWS:
        page.goto(re.sub("#.*", "", page.url) + "#" + view)
        page.wait_for_selector(f"#view-{view}:visible h2")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view
        page.screenshot(path=tmp_path / f"{view}-{width}.png", full_page=True)
        assert (tmp_path / f"{view}-{width}.png").stat().st_size > 10_000


def test_episode_by_itself_is_a_page(runs, open_page):
    args = [
        "analyze",
        "tsne",
        str(runs / "random-box-db-0"),
        "--compare",
        str(runs / "random-box-rnd-0"),
        "--device",
        "cpu",
    ]
    assert cli.main(args) == 0
    page = open_page(runs / "random-box-db-0" / "tsne" / "tsne.html")
    assert page.locator("#view-episodes:visible").count() == 1
    assert not page.is_visible("#nav")
    found = json.loads((runs / "random-box-db-0" / "tsne" / "tsne.json").read_text())
    for chart in found["maps"][::2]:
        assert f"random pairs: {chart['step_ratio']:.3g}" in page.inner_text(".maps")
    page.hover(".points canvas >> nth=0")


@pytest.mark.slow
def test_page_of_a_hundred_runs_is_interactive_within_two_seconds(runs, open_page, tmp_path):
    row = json.loads((runs / "random-box-db-0" / "metrics.jsonl").read_text().splitlines()[-1])
    config = (runs / "random-box-db-0" / "config.toml").read_text()
    summary = (runs / "random-box-db-0" / "summary.json").read_text()
    rng = np.random.default_rng(0)
    for number in range(100):
        folder = tmp_path / "many" / f"run-{number:03d}"
        folder.mkdir(parents=True)
        changed = config.replace("seed = 0", f"seed = {number // 20}")
        changed = changed.replace(
            'noise = "random-box"',
            f'noise = "{("none", "pixel", "sticky", "random-box")[number % 4]}"',
        )
        (folder / "config.toml").write_text(
            changed.replace("gamma = 0.99", f"gamma = 0.9{number // 4 % 5}")
        )
        (folder / "summary.json").write_text(summary)
        with open(folder / "metrics.jsonl", "w") as file:
            for i in range(1000):
                noisy = {
                    k: v * (1 + 0.1 * rng.normal()) if isinstance(v, float) else v
                    for k, v in row.items()
                }
                file.write(json.dumps({**noisy, "steps": 1024 * (i + 1), "updates": i + 1}) + "\n")
    assert (
        cli.main(
            ["report", str(tmp_path / "many"), "--out", str(tmp_path / "out"), "--episodes", "0"]
        )
        == 0
    )
    page = open_page(tmp_path / "out" / "index.html", "curves")
    ready = int(page.get_attribute("html", "data-ready"))
    print(
        f"interactive after {ready} ms; page of {(tmp_path / 'out' / 'index.html').stat().st_size / 1e6:.1f} MB"
    )
    assert ready < 2000
