"""`ssedb stats` as a user runs it: what is printed, and what is on disk."""

import json
import sys

import pytest

from ssedb import cli
from ssedb.compare import tables, write
from ssedb.compare.references import MEASURED
from ssedb.compare.results import load_run, load_runs
from ssedb.runs.alarms import UPDATES_UNDER_LIMIT, Watch
from tests.helpers import log_sick_policy, make_run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two methods, two noises, three seeds on Rooms, and one run that was stopped."""
    folder = tmp_path_factory.mktemp("stats") / "runs"
    for noise, loss in (("none", 0.0), ("random-box", 0.1)):
        for seed in range(3):
            probe = {"bonus_noise_share": 0.1 + 0.01 * seed, "fresh": False}
            make_run(
                folder / f"db-{noise}-{seed}",
                states=0.5 + 0.02 * seed,
                noise=noise,
                seed=seed,
                probe=probe,
            )
            rest = dict(noise=noise, bonus="rnd", bonus_options={}, seed=seed)
            finished = (noise, seed) != ("random-box", 2)
            make_run(
                folder / f"rnd-{noise}-{seed}",
                states=0.4 - loss + 0.02 * seed,
                finished=finished,
                **rest,
            )
    return folder


def test_tables_name_what_they_hold(sweep):
    shown = {table.title: table for table in tables.make_tables(load_runs(sweep))}
    states = shown["share of states seen, more is better (rooms-small), 3 seeds"]
    assert states.columns == ["method", "no noise", "random-box"]
    assert [row[0] for row in states.rows] == ["db", "rnd"]
    assert states.rows[0][1].startswith("0.520 [0.4")
    assert states.rows[1][2].endswith("] (2)")
    assert (
        shown["share of noise in the bonus, less is better (rooms-small), 3 seeds"]
        .rows[0][1]
        .startswith("0.110 [")
    )
    beats = shown["Who beats whom: share of states seen"]
    assert beats.rows[1][1].startswith("0.00 [")  # rnd over db
    assert shown["Runs that no average holds"].rows == [
        ["rnd-random-box-2", "unfinished", "at step 256 of 256"]
    ]
    assert shown["Runs"].rows[1][2] == "5 of 6"


def test_stats_name_the_runs_whose_policy_raised_an_alarm(tmp_path, capsys):
    make_run(tmp_path / "well")
    log_sick_policy(make_run(tmp_path / "sick", seed=1, reward_scale="run"))
    assert cli.main(["stats", str(tmp_path), "--out", str(tmp_path / "out"), "--no-figures"]) == 0
    printed = capsys.readouterr().out
    assert "ALARMS: policies that do not follow their bonus" in printed
    (row,) = json.loads((tmp_path / "out" / "stats.json").read_text())["alarms"]
    assert (row["run"], row["metric"], row["value"]) == ("sick", "explained_variance", -0.5)
    assert "-0.50: it has been under 0 for 6,400 steps" in row["text"]
    assert "try --reward-scale recent or" in row["text"]
    written = (tmp_path / "out" / "tables.md").read_text()
    row = "| db | rooms-small, no noise | explained_variance | 1 of 2 | 0.00 to 1.00 | 1 |"
    assert row in written
    remedy = "the value under 0: the advantages are mostly the value's errors; try --reward-scale"
    assert remedy in written
    titles = [table.title for table in tables.make_tables(load_runs(tmp_path / "well"))]
    assert not any("ALARMS" in title for title in titles)


def test_stats_have_the_alarms_of_a_thinned_run_from_its_summary(tmp_path):
    log_sick_policy(folder := make_run(tmp_path / "sick"))
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    alarm = Watch(map(json.loads, lines)).as_data()
    (folder / "metrics.jsonl").write_text("".join(lines[19::20]))
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    for alarms, found in ((alarm, 1), ([], 0), ([{"metric": "flux"}], 0), ("many", 0), (None, 0)):
        path.write_text(json.dumps(summary | {"alarms": alarms}))
        assert len(load_run(folder).alarms) == found
    path.write_text(json.dumps(summary | {"alarms": alarm, "finished": False}))
    assert load_run(folder).alarms == []  # the summary may be older than the metrics


def test_stats_raise_no_alarm_about_the_entropy_of_a_gaussian_policy(tmp_path):
    folder = make_run(tmp_path / "vectors", finished=False)
    row = {"entropy": -1.0, "explained_variance": 0.5}
    for std, metrics in (({"policy_std": 0.3}, []), ({}, ["entropy"])):
        rows = [{"steps": 64 * (i + 1), **row, **std} for i in range(3 * UPDATES_UNDER_LIMIT)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        assert [alarm.metric for alarm in load_run(folder).alarms] == metrics


def test_score_table_of_many_games_has_a_row_for_each_game(tmp_path):
    for game in ("alien", "breakout", "boxing", "tennis", "seaquest"):
        make_run(tmp_path / game, env=game, score=10.0)
    table = next(
        t for t in tables.make_tables(load_runs(tmp_path)) if t.title.startswith("human-normalised")
    )
    assert table.columns == ["task", "db"]
    assert len(table.rows) == 5
    assert "0 is a uniform random agent, measured over" in table.notes[0]
    assert "Wang et al." in table.notes[0]
    assert not any("literature's random agent" in note for note in table.notes)


def test_score_table_has_both_random_scores_beside_the_human_one(tmp_path):
    for game in ("breakout", "qbert", "rooms-small"):
        make_run(tmp_path / game, env=game, score=10.0)
    runs = load_runs(tmp_path)
    made = {table.title.split(",")[0]: table for table in tables.make_tables(runs)}
    ours = MEASURED["breakout"]
    assert made["Reference scores"].rows == [
        [
            "breakout",
            f"{ours.mean:.2f} ± {ours.standard_error:.3f} ({ours.episodes})",
            "1.70",
            "30.50",
        ],
        ["qbert", "-", "163.9", "13,455"],
    ]
    normalised = next(
        table for title, table in made.items() if title.startswith("human-normalised")
    )
    assert "0 is the literature's random agent for qbert;" in normalised.notes[0]
    data = write.as_data(runs)["references"]
    assert data["games"]["breakout"] == {
        "random": ours.mean, "standard_error": ours.standard_error, "episodes": ours.episodes,
        "random_literature": 1.7, "human_literature": 30.5,
    }  # fmt: skip
    assert data["games"]["qbert"] == {"random_literature": 163.9, "human_literature": 13455.0}
    assert "measured over" in data["about"]
    asked = {table.title: table for table in tables.make_tables(runs, ["human_score_literature"])}
    theirs = asked[
        "human-normalised score with the literature's random agent, more is better, 1 seed"
    ]
    assert theirs.notes[0].startswith(
        "Reference scores: 0 is the literature's random agent for breakout, qbert;"
    )


def test_tables_aggregate_several_games_under_each_noise_too(tmp_path):
    scores = {("db-ensemble", "none"): 4, ("db-ensemble", "random-box"): 4, ("rnd", "none"): 5}
    for game in ("breakout", "gopher"):
        random = MEASURED[game].mean
        for (bonus, noise), times in {**scores, ("rnd", "random-box"): 2}.items():
            own = {"bonus": bonus, "bonus_options": {}, "noise": noise}
            make_run(tmp_path / f"{game}-{bonus}-{noise}", env=game, score=times * random, **own)
    runs = load_runs(tmp_path)
    titles = [table.title for table in tables.make_tables(runs)]
    for part in ("together", "without noise", "under random-box"):
        assert f"All tasks {part}: human-normalised score" in titles
        assert f"All tasks {part}: score above a random agent's, in its own scores" in titles
    beaten = {table.title: table for table in tables.make_tables(runs)}
    under_boxes = beaten["Who beats whom under random-box: human-normalised score"]
    assert under_boxes.columns == ["", "db-ensemble", "rnd"]
    parts = write.as_data(runs)["by_noise"]
    iqm = {
        noise: {
            row["method"]: row["iqm"] for row in part["aggregates"] if "random" in row["measure"]
        }
        for noise, part in parts.items()
    }
    assert iqm == {
        "none": {"db-ensemble": pytest.approx(3), "rnd": pytest.approx(4)},
        "random-box": {"db-ensemble": pytest.approx(3), "rnd": pytest.approx(1)},
    }


def test_tables_of_one_game_have_no_aggregate_for_each_noise(tmp_path):
    for noise in ("none", "random-box"):
        for bonus in ("db", "rnd"):
            own = {"bonus": bonus, "bonus_options": {}, "noise": noise}
            make_run(tmp_path / f"{bonus}-{noise}", env="breakout", score=3.0, **own)
    titles = [table.title for table in tables.make_tables(load_runs(tmp_path))]
    assert [title for title in titles if title.startswith("All tasks ")] == [
        "All tasks together: human-normalised score",
        "All tasks together: score above a random agent's, in its own scores",
    ]


def test_tables_of_one_method_have_no_aggregate(tmp_path):
    for game in ("breakout", "gopher"):
        make_run(tmp_path / game, env=game, score=3.0)
    titles = [table.title for table in tables.make_tables(load_runs(tmp_path))]
    assert not any(title.startswith("All tasks") for title in titles)


def test_measure_that_is_zero_in_every_run_is_shown_only_if_asked_for(tmp_path):
    probe = {"noise": "random-box", "bonus_noise_share": 0.0, "fresh": False}
    make_run(tmp_path / "a", score=0.0, probe=probe)
    runs = load_runs(tmp_path)
    shown, main = tables.choose_measures(runs)
    assert (shown[0], main) == ("states_share", "states_share")
    assert "score" not in shown
    assert "bonus_noise_share" in shown  # 0 is the best that there is
    left = "Left out, because 0 in every finished run: score, mean of the last 100 episodes."
    assert left in tables.make_tables(runs)[0].notes
    assert left not in tables.make_tables(runs, ["states_share"])[0].notes
    assert tables.choose_measures(runs, ["score"]) == (["score"], "score")
    make_run(tmp_path / "b", score=1.0, seed=1)
    assert tables.choose_measures(load_runs(tmp_path))[0][0] == "score"


def test_measures_that_are_all_zero_are_shown_where_there_are_no_others(tmp_path):
    make_run(tmp_path / "a", states=0.0, score=0.0)
    assert "states_share" in tables.choose_measures(load_runs(tmp_path))[0]


@pytest.mark.parametrize("count", [5, 6])
def test_table_of_who_beats_whom_names_its_columns(tmp_path, count):
    bonuses = ("db", "rnd", "icm", "count", "none", "e3b")[:count]
    for bonus in bonuses:
        for seed in range(2):
            folder = tmp_path / f"{bonus}-{seed}"
            make_run(folder, bonus=bonus, bonus_options={}, seed=seed)
    made = {table.title: table for table in tables.make_tables(load_runs(tmp_path))}
    beats = made["Who beats whom: share of states seen"]
    assert len(beats.rows) == count
    few = "No method has 3 runs in a task: the intervals say little."
    assert beats.notes[-1] == few
    if count == 5:
        assert set(beats.columns) == {"", *bonuses}
        assert not any("Columns" in note for note in beats.notes)
    else:
        assert beats.columns == ["", "db", "none"]
        note = "Columns: db, none only. 4 other methods left out here; all pairs are in stats.json."
        assert note in beats.notes


def test_tables_note_what_makes_runs_hard_to_compare(tmp_path):
    make_run(tmp_path / "db-none", seed=0)
    make_run(tmp_path / "db-box", seed=0, noise="random-box")
    other = make_run(tmp_path / "rnd-none", bonus="rnd", bonus_options={}, seed=0)
    plain = {table.title: table.notes for table in tables.make_tables(load_runs(tmp_path))}
    assert len(plain["Runs"]) == 1
    together = plain["All tasks together: share of states seen"]
    assert together == [
        "Over 1 task (an environment under a noise) that every method has.",
        "Left out, because not every method has them: 1 of db.",
    ]
    (other / "summary.json").write_text(
        (other / "summary.json")
        .read_text()
        .replace('"steps": 256, "finished"', '"steps": 320, "finished"')
    )
    with open(other / "metrics.jsonl", "a") as log:
        log.write('{"steps": 320}\n')
    for name, code in (("db-none", "0.1 source a"), ("rnd-none", "0.2 source b")):
        (tmp_path / name / "origin.json").write_text(json.dumps({"code": code, "later": []}))
    notes = tables.make_tables(load_runs(tmp_path))[0].notes
    assert notes[1:] == [
        "Finished runs differ in length; they are compared as they ended.",
        "The runs were made by 2 versions of the code: 0.1 source a; 0.2 source b.",
    ]


def test_tables_without_normalised_scores_have_no_references(sweep):
    assert "Reference scores" not in {table.title for table in tables.make_tables(load_runs(sweep))}


def test_stats_command_writes_open_formats(sweep, capsys):
    pytest.importorskip("matplotlib")
    out = sweep.parent / "stats"
    assert cli.main(["stats", str(sweep), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "share of states seen" in said
    assert f"written to {out}: tables.md, stats.json, figures/" in said
    assert "| db | 0.520 [" in (out / "tables.md").read_text()
    data = json.loads((out / "stats.json").read_text())
    assert data["main"] == "states_share"
    assert len(data["runs"]) == 12
    assert len(data["left_out"]) == 1
    assert data["conditions"]["states_share"][0]["mean"] == pytest.approx(0.52)
    pair = next(row for row in data["improvement"] if row["first"] == "db")
    assert pair["probability"] == 1
    assert [row["iqm"] for row in data["efficiency"] if row["method"] == "db"][-1] == pytest.approx(
        0.52
    )
    figures = {path.stem for path in (out / "figures").glob("*.png")}
    kinds = {"curves", "noise", "measure", "aggregates", "profiles", "improvement", "efficiency"}
    assert {name.split("-")[0] for name in figures} == kinds
    assert {path.stem for path in (out / "figures").glob("*.pdf")} == figures
    assert all(path.stat().st_size > 5000 for path in (out / "figures").glob("*.png"))


def test_stats_command_without_matplotlib_writes_the_rest(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ssedb.compare.write.find_spec", lambda name: None)
    assert cli.main(["stats", str(sweep), "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats.json", "tables.md"]
    said = capsys.readouterr().out
    assert "no figures: matplotlib is not installed" in said


def test_stats_command_without_scipy_ends_in_one_line(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert cli.main(["stats", str(sweep), "--out", str(tmp_path / "stats")]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "scipy is not installed; run `pip install 'ssedb[report]'`" in said.err
    assert not (tmp_path / "stats").exists()


def test_measures_of_ones_own_are_tabulated(sweep, tmp_path, capsys):
    flags = ["--measures", "area:states_share", "--no-figures"]
    assert cli.main(["stats", str(sweep), "--out", str(tmp_path), *flags]) == 0
    assert json.loads((tmp_path / "stats.json").read_text())["main"] == "area:states_share"
    assert cli.main(["stats", str(sweep), "--measures", "luck"]) == 2
    assert "measures=luck: no finished run has it" in capsys.readouterr().err


def test_tables_with_nothing_finished_are_still_written(tmp_path, capsys):
    make_run(tmp_path / "runs" / "a", finished=False)
    assert cli.main(["stats", str(tmp_path / "runs"), "--no-figures"]) == 0
    assert "0 of 1" in capsys.readouterr().out


def test_tables_of_methods_with_other_fidelities_say_so(tmp_path):
    make_run(tmp_path / "a", bonus="db", fidelity="paper")
    make_run(tmp_path / "b", bonus="rnd", fidelity="paper", bonus_options={})
    assert tables.unlike(load_runs(tmp_path)) == []
    make_run(tmp_path / "c", bonus="icm", fidelity="ours", bonus_options={})
    (note,) = tables.unlike(load_runs(tmp_path))
    said = "Methods differ in more than the bonus, by their fidelity"
    assert note in (f"{said} (paper: db, rnd; ours: icm).", f"{said} (ours: icm; paper: db, rnd).")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.469, 0.0, 1.0), ("0.469", "[0.000, 1.000]")),
        ((1.0, 0.9, 1.0), ("1.000", "[0.900, 1.000]")),
        ((1.2, 0.5, 2.1), ("1.20", "[0.50, 2.10]")),
        ((98.25, 95.0, 101.0), ("98.2", "[95.0, 101.0]")),
        ((1234.0, -20.0, 3000.0), ("1,234", "[-20, 3,000]")),
        ((0.2057, None, None), ("0.206", "")),
    ],
)
def test_value_and_interval_have_the_same_digits(values, shown):
    row = dict(zip(("mean", "low", "high"), values, strict=True))
    assert tables.value_and_interval(row, "mean") == shown


def test_probability_and_its_opposite_add_up_to_one():
    rows = [{"probability": p, "low": 0.0, "high": 1.0} for p in (0.625, 0.375)]
    assert [tables.probability(row) for row in rows] == ["0.62 [0.00, 1.00]", "0.38 [0.00, 1.00]"]
    assert tables.probability({"probability": 1.0, "low": None, "high": None}) == "1.00"


@pytest.mark.parametrize("apart", [True, False])
def test_improvement_table_explains_certainty_only_where_there_is_one(tmp_path, apart):
    for bonus, states in (("db", 0.8), ("rnd", 0.2 if apart else 0.79)):
        for seed in range(3):
            own = {"bonus": bonus, "bonus_options": {}, "seed": seed}
            make_run(tmp_path / f"{bonus}-{seed}", states=states + 0.01 * seed, **own)
    (table,) = (t for t in tables.make_tables(load_runs(tmp_path)) if "Who beats" in t.title)
    assert any("1.00 [1.00, 1.00]" in row for row in table.rows) == apart
    assert any("never overlap" in note for note in table.notes) == apart


def test_number_that_rounds_to_zero_has_no_sign():
    assert [tables.number(x) for x in (-0.0001, 0.0, -0.001, -1234.4)] == [
        *("0.000", "0.000", "-0.001", "-1,234"),
    ]
