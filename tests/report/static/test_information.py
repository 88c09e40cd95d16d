"""information.js in a browser: the plane, its curves, and its three kinds of notice."""

import re
import shutil

from ssedb import cli
from tests.report.static.screen import count_colour, pick


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
    assert "I_upper is below 0.1 nats" in alarm
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
    assert count_colour(page, plane, "#cc79a7") > 20
    page.click("#view-information button.toggle")
    assert count_colour(page, plane, "#cc79a7") == 0
    page.click("#view-information button.toggle")
    pick(page, "Task", "rooms-small, no noise")
    for _ in range(100):  # the canvas of another task is drawn a moment later
        if drawn := count_colour(page, "#view-information canvas >> nth=1", "#cc79a7") > 20:
            break
        page.wait_for_timeout(50)
    assert drawn


def test_information_plane_shows_the_origin(report, open_page):
    page = open_page(report / "one.html", "information")
    plane = """() => {
      const chart = new LineChart({ label: "plane", shape: "path" });
      chart.series = [{ x: [5, 9], y: [1, 2] }];
      return chart.extent();
    }"""
    assert page.evaluate(plane) == [0, 9]
    drawn = """() => {
      const { py, bottom, top } = [...charts].find((c) => c.shape === "path" && c.plot).plot;
      return top < py(0) && py(0) < bottom;
    }"""
    assert page.evaluate(drawn)
