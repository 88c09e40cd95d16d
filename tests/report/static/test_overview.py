"""overview.js in a browser: rankings, and notices of what went wrong."""

import itertools
import re

import pytest

from ssedb import cli
from ssedb.compare.results import load_runs
from ssedb.compare.tables import make_tables
from ssedb.report.make import build_page
from tests.helpers import log_sick_policy, make_run
from tests.report.static.screen import data_of, pick

STATES = "share of states seen, more is better (rooms-small), {} seeds"


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
    assert float(rows[0][1]) == pytest.approx(measure["ranking"][0]["iqm"], abs=1e-3)
    assert page.locator("#view-overview svg[role=img] circle").count() == len(measure["ranking"])
    assert "1 left out" in page.inner_text("#view-overview")
    pick(page, "Measure", "entropy of visits (nats)")
    assert "Ranking: entropy of visits" in page.inner_text("#view-overview")


@pytest.mark.parametrize("seeds", [2, 3])
def test_overview_has_the_numbers_and_the_caution_of_the_tables(tmp_path, open_page, seeds):
    for bonus, states in (("db", 0.5), ("rnd", 0.49)):
        for seed in range(seeds):
            own = {"bonus": bonus, "bonus_options": {}, "seed": seed}
            make_run(tmp_path / "runs" / f"{bonus}-{seed}", states=states + 0.04 * seed, **own)
    page = build_page((tmp_path / "runs",), episodes=0, title="t", device="cpu")
    page.write_file(tmp_path / "one.html")
    tables = {table.title: table for table in make_tables(load_runs(tmp_path / "runs"))}
    beats = tables["Who beats whom: share of states seen"]
    text = open_page(tmp_path / "one.html").inner_text("#view-overview")
    shown = [cell for row in beats.rows for cell in row[1:] if cell != "-"]
    assert len(shown) == 2
    assert all(cell in text for cell in shown)
    ((mean, interval),) = (
        row[1].split(" ", 1) for row in tables[STATES.format(seeds)].rows if row[0] == "db"
    )
    assert f"{mean}\t{interval}" in text
    assert ("No method has 3 runs in a task" in text) == (seeds == 2)
    assert "never overlap" not in text


def test_overview_ranks_the_tasks_under_a_noise(noisy_games, tmp_path, open_page):
    page = build_page((noisy_games,), episodes=0, title="games", device="cpu")
    page.write_file(tmp_path / "one.html")
    page = open_page(tmp_path / "one.html")
    first = "#view-overview table >> nth=0 >> tbody tr >> nth=0"
    assert page.inner_text(first).startswith("rnd")
    whole, ranking = (
        page.locator("#view-overview .panel.whole"),
        page.locator("#view-overview .grid"),
    )
    assert whole.bounding_box()["width"] == ranking.bounding_box()["width"]
    tasks = page.locator("#view-overview .panel.whole tbody tr")
    assert {row.split("\t")[1] for row in tasks.all_inner_texts()} == {"no noise", "random-box"}
    pick(page, "Tasks", "under random-box")
    assert "human-normalised score, under random-box" in page.inner_text("#view-overview h3")
    assert page.inner_text(first).startswith("db")


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


def test_overview_of_runs_of_other_lengths_and_fidelities_says_so(open_page, tmp_path):
    make_run(tmp_path / "runs" / "a", bonus="rnd", fidelity="paper", bonus_options={})
    make_run(tmp_path / "runs" / "b", bonus="icm", fidelity="ours", steps=320, bonus_options={})
    build_page((tmp_path / "runs",), episodes=0, title="t", device="cpu").write_file(
        tmp_path / "one.html"
    )
    page = open_page(tmp_path / "one.html")
    notices = page.locator("#view-overview .notice").all_inner_texts()
    assert "Finished runs differ in length; they are compared as they ended." in notices
    assert any("by their fidelity" in notice for notice in notices)


def test_overview_tables_name_a_class_without_its_module(open_page, tmp_path):
    modules = {"a": "my.bonuses:Count", "b": "my.bonuses:Hash", "c": "my.others:Hash", "d": "rnd"}
    for name, bonus in modules.items():
        for seed in range(2):
            folder = make_run(tmp_path / "runs" / f"{name}-{seed}", seed=seed)
            config = (folder / "config.toml").read_text()
            (folder / "config.toml").write_text(config.replace('"db"', f'"{bonus}"'))
    build_page((tmp_path / "runs",), episodes=0, title="t", device="cpu").write_file(
        tmp_path / "one.html"
    )
    page = open_page(tmp_path / "one.html")
    tables = page.locator("#view-overview table")
    for cells in ("thead th:not(:empty)", "tbody td:first-child"):
        shown = tables.nth(1).locator(cells).all_inner_texts()
        assert set(shown) == {"Count", "my.bonuses:Hash", "my.others:Hash", "rnd"}
    named = tables.nth(0).locator("td span", has_text="Count")
    assert named.get_attribute("title") == "my.bonuses:Count"
    assert tables.nth(2).locator("tbody td:nth-child(3)").first.inner_text() == "Count"
    box, scroll = tables.nth(1), page.locator("#view-overview .scroll").nth(1)
    assert box.bounding_box()["width"] <= scroll.bounding_box()["width"]


@pytest.mark.parametrize("width", [1300, 500])
def test_overview_ranking_names_every_method_in_full(open_page, tmp_path, width):
    names = ("mybonuses_of_thesis:HashCountWithALongName", "rnd")
    for bonus in names:
        for rate in (0.0001, 0.0002) if ":" in bonus else (0.0001,):
            folder = make_run(tmp_path / "runs" / f"{bonus[:3]}-{rate}", learning_rate=rate)
            config = (
                (folder / "config.toml").read_text().replace('bonus = "db"', f'bonus = "{bonus}"')
            )
            (folder / "config.toml").write_text(config)
    build_page((tmp_path / "runs",), episodes=0, title="t", device="cpu").write_file(
        tmp_path / "one.html"
    )
    page = open_page(tmp_path / "one.html", width=width)
    chart = page.locator("#view-overview svg[role=img]")
    labels = [
        label.text_content().replace(" ", "") for label in chart.locator("text:has(tspan)").all()
    ]
    assert sorted(labels) == [f"{names[0]}learning_rate=0.000{i}" for i in (1, 2)] + ["rnd"]
    left = chart.bounding_box()["x"]
    boxes = [label.bounding_box() for label in chart.locator("text:has(tspan)").all()]
    assert all(box["x"] >= left for box in boxes)
    for upper, lower in itertools.pairwise(boxes):
        assert upper["y"] + upper["height"] <= lower["y"]
