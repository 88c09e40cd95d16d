"""curves.js in a browser: lines are read, zoomed and hidden."""

import json
import re

import numpy as np
import pytest

from ssedb import cli
from tests.report.static.screen import count_colour, data_of, pick, picture


def test_curves_are_read_zoomed_and_hidden(report, open_page):
    page = open_page(report / "one.html", "curves")
    data = data_of(page)
    assert page.locator("#view-curves section").count() == 2
    assert "Without values of this metric: ?, ?" in page.inner_text(
        "#view-curves"
    )  # the damaged run's unknown task
    boxes = "#view-curves section:has(h3:text('rooms-small, random-box')) canvas"
    purple, vermilion = "#cc79a7", "#d55e00"
    before = count_colour(page, boxes, purple)
    assert before > 300
    page.click("#view-curves button.toggle:text-is('db')")
    assert count_colour(page, boxes, purple) < before / 10
    assert count_colour(page, boxes, vermilion) > 300
    page.click("#view-curves button.toggle:text-is('db')")
    assert count_colour(page, boxes, purple) == before

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
    pick(page, "Metric", "entropy of the policy (nats)")
    assert picture(page, boxes) != before
    page.uncheck("#view-curves input[type=checkbox]")
    page.click("#view-curves section:has(h3:text('rooms-small, random-box')) summary")
    assert "unfinished" in page.inner_text("#view-curves section table")


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
    size = (tmp_path / "out" / "index.html").stat().st_size / 1e6
    print(f"interactive after {ready} ms; page of {size:.1f} MB")
    assert ready < 2000


def test_curves_of_a_share_begin_at_zero(report, open_page):
    page = open_page(report / "one.html", "curves")
    base = """() => {
      const chart = [...charts].find((c) => c.label.startsWith("Curves of") && c.plot);
      return [chart.plot.py(0), chart.plot.bottom];
    }"""
    pick(page, "Metric", "share of states seen")
    at, bottom = page.evaluate(base)
    assert at == bottom
    pick(page, "Metric", "bonus, before normalisation")
    at, bottom = page.evaluate(base)
    assert at != bottom
