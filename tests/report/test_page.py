"""The data behind the page, the page as files, and the command that makes it."""

import dataclasses
import json
import math
import re
import shlex

import numpy as np
import pytest

from ssedb import cli
from ssedb.cli.train import parse_train
from ssedb.compare.results import load_runs
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.report.collapse import bottleneck
from ssedb.report.command import train_command
from ssedb.report.data import collect
from ssedb.report.explorer import COLUMNS, kept_steps, sheet
from ssedb.report.page import Page, safe_json
from ssedb.report.thin import compact, thin_curve
from tests.helpers import log_sick_policy, make_run
from tests.report.conftest import HOSTILE, HOSTILE_BONUS
from tests.toy import tiny_config


def test_thin_keeps_every_spike_and_only_real_points():
    rng = np.random.default_rng(0)
    x, y = np.arange(10_000.0), rng.normal(size=10_000)
    y[[1234, 7777]] = 50, -60
    thin_x, thin_y = thin_curve(x, y, 200)
    assert len(thin_x) <= 200
    assert (thin_x[0], thin_x[-1]) == (0, 9999)
    assert (np.diff(thin_x) > 0).all()
    assert {1234.0, 7777.0} <= set(thin_x)
    np.testing.assert_array_equal(thin_y, y[thin_x.astype(int)])
    for start in range(
        0, 10_000, 500
    ):  # the envelope stays: in every stretch the extremes are near
        part = slice(start, start + 500)
        inside = (thin_x >= start) & (thin_x < start + 500)
        assert thin_y[inside].max() == pytest.approx(y[part].max(), abs=1e-12)
        assert thin_y[inside].min() == pytest.approx(y[part].min(), abs=1e-12)


def test_thin_of_short_curves_keeps_all_and_leaves_out_holes():
    x, y = np.arange(6.0), np.array([1, np.nan, 2, np.inf, 3, 4])
    thin_x, thin_y = thin_curve(x, y, 100)
    assert (thin_x.tolist(), thin_y.tolist()) == ([0, 2, 4, 5], [1, 2, 3, 4])
    assert compact(np.array([1.0, 0.123456789, 1e20, -3])) == [1, 0.12346, 1e20, -3]


def curves(upper, nce, chance=-5.0, length=40):
    return {
        key: np.full(length, value)
        for key, value in (("i_upper", upper), ("i_nce", nce), ("i_nce_chance", chance))
    }


def test_bottleneck_whose_contrast_beats_blind_guessing_is_open():
    assert bottleneck(curves(20.0, -1.0)).state == "open"
    assert bottleneck(curves(0.001, -4.0)).state == "open"
    late = curves(0.001, -5.0)
    late["i_upper"][-4:] = 5.0
    late["i_nce"][-4:] = -2.0
    assert bottleneck(late).state == "open"  # at its end
    late["i_upper"][-1] = np.nan
    assert bottleneck(late).i_upper == 5.0


def test_bottleneck_whose_nats_tell_nothing_is_not_opened_yet():
    assert (
        bottleneck(curves(20.0, -6.5)).state == "not opened yet"
    )  # below blind guessing, as a young model is
    assert bottleneck(curves(0.4, -5.0)).state == "not opened yet"
    assert bottleneck(curves(0.4, -4.91)).state == "not opened yet"
    assert bottleneck(curves(0.4, -4.89)).state == "open"
    lucky = curves(20.0, -6.5)
    lucky["i_nce"][10] = -2.0
    assert bottleneck(lucky).state == "not opened yet"  # one minibatch is no opening


def test_bottleneck_that_lets_nothing_through_is_shut():
    assert bottleneck(curves(0.001, -5.02)).state == "shut"  # the pilot's collapse
    assert bottleneck(curves(0.09, -4.91)).state == "shut"
    fallen = curves(3.0, -5.02)
    fallen["i_nce"][10:20] = -2.0
    assert bottleneck(fallen).state == "shut"  # it was open before


def test_bottleneck_without_the_contrast_is_judged_by_i_upper_alone():
    assert bottleneck(curves(20.0, -6.5), contrast=False).state == "open"
    assert bottleneck(curves(0.001, -4.0), contrast=False).state == "shut"


def test_bottleneck_of_a_run_without_one_has_no_state():
    assert bottleneck({"score": np.ones(3)}) is None
    assert bottleneck(curves(np.nan, np.nan)) is None


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(
            env="rooms", bonus="rnd", preset="rooms", steps=10, seed=3, out="runs/it's a name"
        ),
        TrainConfig(
            fidelity="released", noise="pixel", bonus_options={"alpha1": 0.5}, reward_scale="none"
        ),
        tiny_config("runs/x", policy_layers=("relu", "linear", "relu")),
        TrainConfig(
            env="CartPole-v1",
            env_kwargs={"size": 8, "mode": "a b", "goals": [1], "hard": True, "deep": {"x": 0.5}},
        ),
        TrainConfig(learning_rate=1e-3, bonus_learning_rate=1e-2),
    ],
)
def test_command_on_the_page_leads_to_the_same_configuration(config):
    words = shlex.split(train_command(config))
    assert words[:2] == ["ssedb", "train"]
    assert parse_train(words[2:]) == (config, None)


@pytest.fixture(scope="module")
def data(runs):
    return collect(load_runs(runs), "title", runs)


def by_name(data):
    return {run["name"]: run for run in data["runs"]}


def test_page_lists_every_run_and_averages_none_away(data):
    found = by_name(data)
    status = {name: run["status"] for name, run in found.items()}
    assert status["random-box-db-0"] == "finished"
    assert status["stopped"] == "unfinished"
    assert status[HOSTILE] == "failed"
    assert status["damaged"] == "damaged"
    assert status["planned"] == "missing"
    assert "<b>bonus_loss is nan</b>" in found[HOSTILE]["reason"]
    assert found["shut"]["neck"]["state"] == "shut"
    assert found["random-box-rnd-0"]["neck"] is None
    assert found["shut"]["not_finite"] == ["value_loss"]
    assert found["stopped"]["curves"]["states_share"]["x"] == [64, 128]
    measure = next(m for m in data["measures"] if m["key"] == "states_share")
    row = next(
        r for r in measure["conditions"] if (r["noise"], r["method"]) == ("random-box", "db")
    )
    assert (row["runs"], row["left_out"]) == (3, 1)
    assert [r["iqm"] for r in measure["ranking"]] == sorted(
        (r["iqm"] for r in measure["ranking"]), reverse=True
    )


def test_page_names_what_is_not_finite(tmp_path):
    rows = [
        {"steps": 1, "score": 1.0},
        {"steps": 2, "value_loss": math.inf, "score": 2.0},
        {"steps": 3, "entropy": math.nan},
    ]
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load_runs(run)[0].not_finite == ("value_loss", "entropy")


def test_page_names_the_zero_of_normalised_scores(tmp_path):
    make_run(tmp_path / "run", env="breakout", score=3.0)
    measures = {m["key"]: m for m in collect(load_runs(tmp_path), "title", tmp_path)["measures"]}
    assert measures["human_score"]["about"].startswith("0 is a uniform random agent, measured over")
    assert measures["human_score_literature"]["about"].startswith(
        "0 is the literature's random agent for breakout;"
    )
    assert measures["score"]["about"] == ""


def test_page_ranks_several_games_under_each_noise_too(noisy_games):
    data = collect(load_runs(noisy_games), "title", noisy_games)
    measure = next(m for m in data["measures"] if m["key"] == "human_score")
    best = {part["name"]: part["ranking"][0]["method"] for part in measure["by_noise"]}
    assert best == {"without noise": "rnd", "under random-box": "db"}
    (beaten, _) = measure["by_noise"][1]["improvements"]
    assert (beaten["first"], beaten["probability"], beaten["tasks"]) == ("db", 1, 2)
    assert measure["ranking"][0]["tasks"] == 4


def test_page_of_one_game_has_no_ranking_for_each_noise(tmp_path):
    for noise in ("none", "random-box"):
        make_run(tmp_path / noise, env="breakout", noise=noise, score=3.0)
    measures = collect(load_runs(tmp_path), "title", tmp_path)["measures"]
    assert [measure["by_noise"] for measure in measures] == [[]] * len(measures)


def test_page_holds_the_alarms_of_every_policy(tmp_path):
    make_run(tmp_path / "well")
    log_sick_policy(make_run(tmp_path / "sick", seed=1))
    runs = {run["name"]: run for run in collect(load_runs(tmp_path), "title", tmp_path)["runs"]}
    (alarm,) = runs["sick"]["alarms"]
    assert alarm["stands"] is True
    assert "explained variance of the value -0.50: it has been under 0" in alarm["text"]
    assert runs["well"]["alarms"] == []


def test_page_holds_the_state_of_every_bottleneck(bottlenecks):
    root = bottlenecks(
        shut=(0.004, -0.01), young=(20.0, -1.5), grown=(20.0, 2.0), no_nce=(20.0, -1.5)
    )
    necks = {
        name: run["neck"] for name, run in by_name(collect(load_runs(root), "title", root)).items()
    }
    assert {name: neck["state"] for name, neck in necks.items()} == {
        "shut": "shut", "young": "not opened yet", "grown": "open", "no_nce": "open",
    }  # fmt: skip
    assert (necks["young"]["i_upper"], necks["young"]["over"]) == (20, -1.5)


def test_ranking_of_a_lower_is_better_measure_is_reversed(runs):
    from ssedb.compare.results import Run
    from ssedb.report.data import _measure

    made = [
        Run(
            runs / name,
            {"env": "e", "noise": "none"},
            "finished",
            probe={"bonus_noise_share": value},
            method=name,
        )
        for name, value in (("a", 0.9), ("b", 0.1), ("c", 0.5))
    ]
    assert [r["method"] for r in _measure(made, "bonus_noise_share")["ranking"]] == ["b", "c", "a"]


def test_ranking_leaves_out_an_env_without_the_measure(runs):
    from ssedb.compare.results import Run
    from ssedb.report.data import _measure, _measures

    rooms = {"env": "rooms", "noise": "none"}
    made = [
        Run(
            runs / "a",
            rooms,
            "finished",
            summary={"last": {"states_share": 0.5, "score": 1}},
            method=str(i),
        )
        for i in range(3)
    ]
    made += [
        Run(
            runs / "b",
            {"env": "alien", "noise": "none"},
            "finished",
            summary={"last": {"score": 900.0}},
            method="0",
        )
    ]
    assert (
        _measures(made)[0] == "states_share"
    )  # not the score, though all have one: it is on no common scale
    assert (_measure(made, "score")["mixed"], _measure(made[:3], "score")["mixed"]) == (True, False)
    assert {row["env"] for row in _measure(made, "states_share")["conditions"]} == {"rooms"}
    stopped = Run(runs / "c", {"env": "alien", "noise": "none"}, "unfinished", method="1")
    assert {row["env"] for row in _measure([*made, stopped], "states_share")["conditions"]} == {
        "rooms",
        "alien",
    }


def test_rooms_maps_are_on_the_page_where_runs_have_them(data):
    maps = {data["runs"][m["run"]]["name"]: m for m in data["rooms"]}
    assert maps["stopped"]["steps"] == []
    full = maps["random-box-db-0"]
    assert (full["steps"][0], full["steps"][-1]) == (0, 256)
    assert sum(row.count("1") for row in full["floor"]) == len(full["visits"][0])
    assert {mark["what"] for mark in full["marks"]} == {"start", "key", "lock", "treasure"}


def test_page_holds_settings_and_commands(data):
    found = by_name(data)
    run = found["random-box-db-1"]
    assert "--noise random-box" in run["command"]
    assert "--seed 1" in run["command"]
    assert run["machine"]["torch"]
    assert found["damaged"]["command"] is None
    assert found[HOSTILE]["command"] is None  # no such bonus


def test_page_text_cannot_leave_the_json():
    hostile = {HOSTILE_BONUS: "<!--<script>", "amp": "&lt; \u2028 {{data}}"}
    text = safe_json(hostile)
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == hostile
    with pytest.raises(ValueError, match="JSON compliant"):
        safe_json(float("nan"))


def embedded(html, name):
    return json.loads(
        re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)[1]
    )


def test_page_is_written_as_a_folder_or_as_a_file(tmp_path):
    page = Page({"title": HOSTILE_BONUS + " {{data}}", "runs": [], "episodes": []})
    page.add_picture("frames/0-seen.webp", b"picture")
    folder = page.write_folder(tmp_path / "folder")
    assert (tmp_path / "folder" / "frames" / "0-seen.webp").read_bytes() == b"picture"
    single = page.write_file(tmp_path / "one.html").read_text()
    for text in (folder.read_text(), single):
        assert embedded(text, "data")["title"] == HOSTILE_BONUS + " {{data}}"
        assert text.count("pwned=1</script>") == 0
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
    assert embedded(single, "pictures") == {
        "frames/0-seen.webp": "data:image/webp;base64,cGljdHVyZQ=="
    }
    assert " src=" not in single
    page.write_folder(tmp_path / "folder")  # a report may be replaced


def test_report_overwrites_nothing_else(tmp_path):
    page = Page({"title": "t"})
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(ConfigError, match="is not a report"):
        page.write_folder(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="holds other files"):
        page.write_folder(tmp_path / "other")
    with pytest.raises(ConfigError, match="is a folder"):
        page.write_file(tmp_path / "other")
    assert (tmp_path / "index.html").read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot write"):
        page.write_folder(tmp_path / "index.html" / "deep")


def test_frames_are_laid_on_a_sheet():
    import io

    from PIL import Image

    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8) // 64 * 64
    picture = np.asarray(
        Image.open(io.BytesIO(sheet(np.repeat(np.repeat(frames, 4, 1), 4, 2)))).convert("RGB")
    ).astype(int)
    assert picture.shape == (2 * 32, COLUMNS * 32, 3)
    for i in (0, 24, 25, 29):
        row, column = divmod(i, COLUMNS)
        shown = picture[row * 32 : row * 32 + 32, column * 32 : column * 32 + 32]
        assert np.abs(shown - np.repeat(np.repeat(frames[i], 4, 0), 4, 1)).mean() < 12
    assert kept_steps(5, {2}) == [0, 1, 2, 3, 4]
    kept = kept_steps(4500, {7, 4001}, 1000)
    assert {0, 7, 4001, 4499} <= set(kept)
    assert len(kept) <= 1002


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["report"], "no folder of runs is named|runs"),
        (["report", "/nonexistent"], "there is no folder /nonexistent"),
        (["report", ".", "--episodes", "-1"], "episodes=-1: must be 0 or more"),
    ],
)
def test_report_with_a_mistake_ends_in_one_line(args, message, capsys):
    assert cli.main(args) == 2
    assert re.search(message, capsys.readouterr().err)


def test_report_of_a_folder_without_runs_is_refused(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_add_episodes_leaves_out_a_bonus_that_is_not_finite(runs, monkeypatch):
    from ssedb.report import explorer
    from ssedb.runs.progress import silent

    trace = explorer.trace_bonus

    def diverged(episode, run, device):
        found = trace(episode, run, device)
        return dataclasses.replace(found, bonus=np.full_like(found.bonus, np.nan))

    monkeypatch.setattr(explorer, "trace_bonus", diverged)
    page = Page({"title": "t", "episodes": []})
    run = runs / "random-box-db-0"
    complaints = explorer.add_episodes(page, load_runs(run), 1, "cpu", silent)
    assert complaints == [f"{run}: the bonus of db is not finite"]
    assert page.data["episodes"] == []
