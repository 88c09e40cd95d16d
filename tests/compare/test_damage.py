"""Run folders with damaged files: the reading commands cope, mark the run and say why."""

import json
import re

import pytest

from ssedb import cli
from ssedb.compare.results import load_runs
from ssedb.envs.rooms.layout import SIZES, draw_layout
from ssedb.report.data import collect
from ssedb.report.page import safe_json
from ssedb.runs.metrics import read_log
from tests.compare.test_results import make_run

NESTED = "[" * 100_000
HUGE = "1" + "0" * 400
LINE = b'{"steps": 128, "states_share": 0.375, "score": null}\n'


def edit(name, change):
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


def write(name, text):
    return lambda run: (run / name).write_text(text)


def replace(name, old, new):
    def change(data):
        assert old in data
        return data.replace(old, new)

    return edit(name, change)


def settings(old, new):
    return replace("config.toml", old, new)


def instead_of_the_log(run):
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").mkdir()


def link_to_another_run(run):
    other = make_run(run.parent.parent / "secret" / "run", states=0.77)
    for name in ("metrics.jsonl", "summary.json"):
        (run / name).unlink()
        (run / name).symlink_to(other / name)


DAMAGE = {
    "log cut": (edit("metrics.jsonl", lambda d: d[:-9]), "line 4 .* is cut"),
    "log cut at a line": (
        edit("metrics.jsonl", lambda d: b"".join(d.splitlines(True)[:2])),
        r"metrics\.jsonl ends at step 128 of 256",
    ),
    "log empty": (write("metrics.jsonl", ""), r"metrics\.jsonl is lost"),
    "log not UTF-8": (replace("metrics.jsonl", b'"score"', b'"sc\xffre"'), "line 1 .* cannot be"),
    "log with zeros": (replace("metrics.jsonl", LINE, bytes(40)), "line 2 .* cannot be"),
    "log of lists": (replace("metrics.jsonl", LINE, b"[1]\n"), "line 2 .* cannot be"),
    "log nested": (write("metrics.jsonl", NESTED), "line 1 .* is cut"),
    "log without steps": (replace("metrics.jsonl", b'"steps": 128', b'"at": 128'), "line 2"),
    "log with NaN steps": (replace("metrics.jsonl", b": 128", b": NaN"), "line 2"),
    "log with steps as text": (replace("metrics.jsonl", b": 128", b': "128"'), "line 2"),
    "log is a folder": (instead_of_the_log, r"metrics\.jsonl is no plain file"),
    "links": (link_to_another_run, r"summary\.json is no plain file.*metrics\.jsonl is no plain"),
    "maps cut": (write("maps.jsonl", '{"steps": 64, "vis'), r"maps\.jsonl, the last one, is cut"),
    "summary empty": (write("summary.json", ""), r"summary\.json cannot be read"),
    "summary cut": (edit("summary.json", lambda d: d[:-9]), r"summary\.json cannot be read"),
    "summary a list": (write("summary.json", "[]"), r"summary\.json holds no object"),
    "summary nested": (write("summary.json", NESTED), r"summary\.json cannot be read"),
    "summary of texts": (replace("summary.json", b": 256,", b': "256",'), "summary.json has steps"),
    "summary last": (write("summary.json", '{"last": [1]}'), "summary.json has last"),
    "probe not UTF-8": (
        lambda run: (run / "probe.json").write_bytes(b'{"fresh": "\xff"}'),
        r"probe\.json cannot be read",
    ),
    "provenance": (write("origin.json", '{"code": ["a"]}'), r"origin\.json has code"),
    "failure": (write("failure.json", '{"attempts": "many"}'), r"failure\.json has attempts"),
    "config empty options": (settings(b"[env_kwargs]", b"env_kwargs = 3"), "config.toml has env_k"),
    "config bonus a list": (settings(b'bonus = "db"', b'bonus = ["db"]'), "config.toml has bonus="),
    "config bonus blank": (settings(b'bonus = "db"', b'bonus = " "'), "config.toml has bonus="),
    "config escape": (settings(b'"db"', b'"db\\u001b[2J"'), "config.toml has bonus="),
    "config rate": (settings(b"entropy_coef = ", b"entropy_coef = 'x' # "), "config.toml has ent"),
    "config seed": (settings(b"seed = 0", b"seed = 'zero'"), "config.toml has seed="),
    "config not UTF-8": (settings(b'"db"', b'"d\xff"'), "config.toml cannot be read"),
    "config nested": (write("config.toml", "a = " + NESTED), "config.toml cannot be read"),
    "config number": (write("config.toml", "a = " + "1" * 5000), "config.toml cannot be read"),
}
"""What happens to a finished run, and what is said of it."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_stats_and_report_mark_a_damaged_run_and_keep_the_others(tmp_path, kind, capsys):
    damage, reason = DAMAGE[kind]
    runs = tmp_path / "runs"
    make_run(runs / "whole", seed=1, states=0.25)
    damage(make_run(runs / "run", states=0.75))
    found = {run.path.name: run for run in load_runs(runs)}
    assert (found["run"].status, found["whole"].status) == ("damaged", "finished")
    assert re.search(reason, found["run"].reason)
    assert "\n" not in found["run"].reason
    assert cli.main(["stats", str(runs), "--no-figures"]) == 0
    said = capsys.readouterr()
    assert "damaged" in said.out
    assert "0.77" not in said.out
    means = json.loads((runs / "stats" / "stats.json").read_text())["conditions"]["states_share"]
    assert [row["mean"] for row in means if row["runs"]] == [0.25]
    page = safe_json(collect(list(found.values()), "t", tmp_path))
    assert '"status":"damaged"' in page


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (b"NaN", "not_finite"),
        (b"-Infinity", "not_finite"),
        (HUGE.encode(), "metrics"),
        (b'"text"', "metrics"),
        (b"[[]]", "metrics"),
    ],
)
def test_value_that_is_no_finite_number_is_a_hole_in_the_curve(tmp_path, change, what):
    run = make_run(tmp_path / "run")
    replace("metrics.jsonl", b"0.25", change)(run)
    replace("summary.json", b'"score": null', b'"score": ' + change)(run)
    (loaded,) = load_runs(run)
    assert loaded.status == "finished"
    steps, values = loaded.curve("states_share")
    assert [v for v in values.tolist() if v == v] == [0.125, 0.375, 0.5]
    assert steps.tolist() == [64, 128, 192, 256]
    assert loaded.not_finite == (("states_share",) if what == "not_finite" else ())
    assert loaded.value("score") is None
    safe_json(collect([loaded], "t", tmp_path))


def test_maps_of_a_diverged_run_do_not_stop_the_report(tmp_path):
    run = make_run(tmp_path / "run")
    cells = int(draw_layout(SIZES["small"], 0).floor.sum())
    rows = [
        {"steps": 64, "visits": [1] * cells, "bonus": [float("nan")] * cells},
        {"steps": 128, "visits": "many", "bonus": None},
        {"steps": 192, "visits": [2] * cells, "bonus": {"a": 1}},
    ]
    (run / "maps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (maps,) = json.loads(safe_json(collect(load_runs(run), "t", tmp_path)))["rooms"]
    assert maps["steps"] == [64, 192]
    assert maps["bonus"] == [[None] * cells, None]


def test_rows_that_a_resumed_run_wrote_again_count_once_and_are_said(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    rows = [{"steps": at, "states_share": at / 1000} for at in (64, 128, 192)]
    cut = '{"steps": 256, "sta'
    again = [{"event": "resume", "steps": 64}, *({"steps": at} for at in (128, 192, 256))]
    lines = [*map(json.dumps, rows), cut, *map(json.dumps, again)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    log = read_log(run / "metrics.jsonl")
    assert [row["steps"] for row in log.rows] == [64, 128, 192, 256]
    assert [row.get("states_share") for row in log.rows] == [0.064, None, None, None]
    assert (log.repeated, log.damage) == (2, "")  # the cut line was written again
    assert load_runs(run)[0].status == "finished"
    assert cli.main(["stats", str(run), "--no-figures"]) == 0
    assert "1 resumed run logged 2 updates again; the later ones count." in capsys.readouterr().out


def test_killed_run_is_unfinished_and_its_cut_line_is_said(tmp_path):
    run = make_run(tmp_path / "run", finished=False, steps=128)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"steps": 192, "st')
    (loaded,) = load_runs(run)
    assert loaded.status == "unfinished"
    assert loaded.reason == ("at step 128 of 256; line 3 of metrics.jsonl, the last one, is cut")


@pytest.mark.parametrize(
    "plan",
    [
        "[]",
        '{"runs": 3}',
        '{"runs": [3]}',
        '{"runs": [{"folder": "a"}]}',
        '{"runs": [{"folder": "../secret", "config": {}}]}',
        '{"runs": [{"folder": "/etc", "config": {}}]}',
        '{"runs": [{"folder": "..", "config": {}}]}',
        '{"runs": [{"folder": "link", "config": {}}]}',
        '{"runs": [{"folder": "a", "config": 7}]}',
        '{"runs": [{"folder": "a", "config": {"steps": "b"}}]}',
        "{",
    ],
)
def test_plan_that_is_damaged_or_names_other_folders_is_refused_in_one_line(tmp_path, plan):
    runs = tmp_path / "runs"
    make_run(runs / "run", states=0.25)
    make_run(tmp_path / "secret", states=0.77)
    (runs / "link").symlink_to(tmp_path / "secret")
    (runs / "plan.json").write_text(plan)
    found = {run.path.name: run for run in load_runs(runs)}
    assert {name: run.status for name, run in found.items()} == {
        "run": "finished",
        "plan.json": "damaged",
    }
    assert found["plan.json"].reason.startswith("plan.json ")
    assert "0.77" not in safe_json(collect(list(found.values()), "t", tmp_path))
