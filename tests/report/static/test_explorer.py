"""explorer.js in a browser: an episode's frames, curve, spikes and maps move together."""

import base64
import io
import json
import re

import numpy as np

from ssedb import cli
from tests.report.static.screen import count_colour, data_of, pick, pixels, until


def frame_of(data, pictures, episode, kind, step):
    """Return a frame as it is stored in the page, int [H, W, 3]."""
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
        "document.querySelector('.stage canvas').getContext('2d')"
        ".getImageData(40, 40, 1, 1).data[3] > 0",
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
    assert count_colour(page, curve, "#cc79a7") > 100
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
