"""The data behind the page: runs, measures, bottlenecks, alarms, maps, settings."""

import json
import math

import pytest

from ssedb.compare.results import Run, load_runs
from ssedb.report.data import collect
from tests.helpers import log_sick_policy, make_run
from tests.report.conftest import HOSTILE


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


def test_page_names_the_zero_of_normalised_scores(tmp_path):
    make_run(tmp_path / "run", env="breakout", score=3.0)
    measures = {m["key"]: m for m in collect(load_runs(tmp_path), "title", tmp_path)["measures"]}
    assert measures["human_score"]["about"].startswith("0 is a uniform random agent, measured over")
    assert measures["human_score_literature"]["about"].startswith(
        "0 is the literature's random agent for breakout;"
    )
    assert measures["score"]["about"] == ""


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


def made_run(path, name, env="rooms", status="finished", **found):
    return Run(path / name, {"env": env, "noise": "none"}, status, method=name, **found)


def measures(runs):
    """Return the measures of a page by name, in its order."""
    return {m["key"]: m for m in collect(runs, "title", runs[0].path.parent)["measures"]}


def envs(measure):
    return {row["env"] for row in measure["conditions"]}


def test_ranking_of_a_lower_is_better_measure_is_reversed(tmp_path):
    shares = {"a": 0.9, "b": 0.1, "c": 0.5}
    runs = [made_run(tmp_path, k, probe={"bonus_noise_share": v}) for k, v in shares.items()]
    ranking = measures(runs)["bonus_noise_share"]["ranking"]
    assert [row["method"] for row in ranking] == ["b", "c", "a"]


def test_ranking_leaves_out_an_env_without_the_measure(tmp_path):
    both, score = ({"last": {"states_share": 0.5, "score": 1}}, {"last": {"score": 900.0}})
    rooms = [made_run(tmp_path, name, summary=both) for name in "abc"]
    alien = made_run(tmp_path, "d", "alien", summary=score)
    found = measures([*rooms, alien])
    # Not the score, though all have one: it is on no common scale.
    assert next(iter(found)) == "states_share"
    assert found["score"]["mixed"]
    assert not measures(rooms)["score"]["mixed"]
    assert envs(found["states_share"]) == {"rooms"}
    stopped = made_run(tmp_path, "e", "alien", "unfinished")
    assert envs(measures([*rooms, alien, stopped])["states_share"]) == {"rooms", "alien"}


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
