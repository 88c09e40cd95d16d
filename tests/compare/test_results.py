"""Run folders as tables: every run is accounted for, whole or not."""

import dataclasses
import json
import math
import tomllib

import pytest
import tomli_w

from ssedb.compare import aggregate, results
from ssedb.compare.references import MEASURED
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from tests.helpers import make_run
from tests.toy import tiny_config


@pytest.fixture
def sweep(tmp_path):
    for seed in range(3):
        make_run(
            tmp_path / f"db-{seed}",
            states=0.4 + 0.1 * seed,
            seed=seed,
            probe={"bonus_noise_share": 0.1 * seed},
        )
        make_run(tmp_path / f"rnd-{seed}", states=0.3, bonus="rnd", bonus_options={}, seed=seed)
    make_run(tmp_path / "db-9", states=0.9, seed=9, steps=128, finished=False)
    failed = tmp_path / "rnd-8"
    failed.mkdir()
    config = {"env": "rooms-small", "noise": "none", "bonus": "rnd", "seed": 8, "steps": 256}
    (failed / "failure.json").write_text(
        json.dumps({"error": "CUDA out of memory", "attempts": 2, "config": config})
    )
    missing = {"folder": "rnd-7", "config": {**config, "seed": 7}}
    (tmp_path / "plan.json").write_text(
        json.dumps({"runs": [missing, {"folder": "db-0", "config": {}}]})
    )
    damaged = make_run(tmp_path / "rnd-6", bonus="rnd", bonus_options={}, seed=6)
    (damaged / "config.toml").write_text("env = ")
    return tmp_path


def test_results_account_for_every_run(sweep):
    runs = results.load_runs(sweep)
    assert [run.path.name for run in runs] == sorted(run.path.name for run in runs)
    status = {run.path.name: run.status for run in runs}
    assert status.pop("db-9") == "unfinished"
    assert status.pop("rnd-8") == "failed"
    assert status.pop("rnd-7") == "missing"
    assert status.pop("rnd-6") == "damaged"
    assert set(status.values()) == {"finished"}
    assert len(status) == 6
    reasons = {row["run"]: row["reason"] for row in aggregate.left_out(runs)}
    assert reasons["db-9"] == "at step 128 of 256"
    assert reasons["rnd-8"] == "CUDA out of memory (tried 2 times)"
    assert reasons["rnd-7"] == "planned, not begun"
    assert "config.toml cannot be read" in reasons["rnd-6"]
    assert len(aggregate.run_table(runs)) == 10


def test_results_call_a_lengthened_run_unfinished(tmp_path):
    run = results.load_runs(make_run(tmp_path / "run", steps=128))[0]  # of 256
    assert (run.status, run.reason) == ("unfinished", "at step 128 of 256")
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"steps": 160}\n')  # killed before it wrote another summary
    assert results.load_runs(run.path)[0].reason == "at step 160 of 256"


def test_variant_and_strength_belong_to_the_noise_and_not_to_the_method(tmp_path):
    for number, changes in enumerate([{}, {"noise_variant": "wrap"}, {"noise_strength": 0.5}]):
        make_run(tmp_path / str(number), noise="random-box", **changes)
    runs = results.load_runs(tmp_path)
    assert {run.method for run in runs} == {"db"}
    labels = [noise for _, noise in results.tasks_of(runs)]
    assert labels == ["random-box", "random-box (strength 0.5)", "random-box (wrap)"]


def test_fidelities_are_methods_although_their_noises_differ(tmp_path):
    for number, fidelity in enumerate(["paper", "released"]):
        make_run(tmp_path / str(number), noise="random-box", fidelity=fidelity)
    runs = results.load_runs(tmp_path)
    assert [run.method for run in runs] == ["db paper", "db released"]
    assert [run.noise for run in runs] == ["random-box", "random-box (wrap)"]


def test_condition_table_has_a_row_for_each_method(sweep):
    rows = {
        row["method"]: row
        for row in aggregate.condition_table(results.load_runs(sweep), "states_share")
    }
    assert rows["db"]["mean"] == pytest.approx(0.5)
    assert (rows["db"]["runs"], rows["db"]["left_out"]) == (3, 1)
    assert rows["db"]["low"] < 0.5 < rows["db"]["high"]
    assert (rows["rnd"]["runs"], rows["rnd"]["left_out"]) == (3, 2)
    probed = {
        row["method"]: row
        for row in aggregate.condition_table(results.load_runs(sweep), "bonus_noise_share")
    }
    assert probed["db"]["mean"] == pytest.approx(0.1)
    assert (probed["rnd"]["mean"], probed["rnd"]["left_out"]) == (None, 5)


def test_aggregates_and_improvement_favour_the_better_method(sweep):
    runs = results.load_runs(sweep)
    rows = {row["method"]: row for row in aggregate.aggregate_table(runs, "states_share")}
    assert rows["db"]["iqm"] == pytest.approx(0.5)
    assert rows["db"]["optimality_gap"] == pytest.approx(0.5)
    pairs = {
        (r["first"], r["second"]): r["probability"]
        for r in aggregate.improvement_table(runs, "states_share")
    }
    assert pairs == {("db", "rnd"): 1, ("rnd", "db"): 0}
    for seed in range(3):
        (sweep / f"rnd-{seed}" / "probe.json").write_text(json.dumps({"bonus_noise_share": 0.9}))
    pairs = {
        (r["first"], r["second"]): r
        for r in aggregate.improvement_table(results.load_runs(sweep), "bonus_noise_share")
    }
    assert pairs["db", "rnd"]["probability"] == 1  # less noise is better


def test_aggregates_are_over_the_tasks_that_every_method_has(tmp_path):
    for bonus, noises in (("db", ("none", "random-box")), ("rnd", ("none",))):
        for noise in noises:
            make_run(
                tmp_path / f"{bonus}-{noise}",
                bonus=bonus,
                bonus_options={},
                noise=noise,
                states=0.9 if noise == "none" else 0.1,
            )
    rows = {
        row["method"]: row
        for row in aggregate.aggregate_table(results.load_runs(tmp_path), "states_share")
    }
    assert {method: (row["tasks"], row["tasks_left_out"]) for method, row in rows.items()} == {
        "db": (1, 1),
        "rnd": (1, 0),
    }
    assert rows["db"]["mean"] == pytest.approx(0.9)


def test_methods_come_in_a_fixed_order_with_the_random_agent_last(tmp_path):
    for bonus in ("rnd", "none", "db-count", "icm", "db"):
        make_run(tmp_path / bonus, bonus=bonus, bonus_options={})
    assert results.method_order(results.load_runs(tmp_path)) == [
        "db",
        "db-count",
        "icm",
        "rnd",
        "none",
    ]


def test_improvement_of_two_single_runs_is_none(tmp_path):
    for bonus in ("db", "rnd"):
        make_run(tmp_path / bonus, bonus=bonus, bonus_options={})
    assert aggregate.improvement_table(results.load_runs(tmp_path), "states_share") == []
    make_run(tmp_path / "more", bonus="rnd", bonus_options={}, seed=1)
    assert len(aggregate.improvement_table(results.load_runs(tmp_path), "states_share")) == 2


def test_share_interval_stays_a_share(tmp_path):
    for seed, states in enumerate((0.01, 0.99)):
        make_run(tmp_path / str(seed), seed=seed, states=states)
    row = aggregate.condition_table(results.load_runs(tmp_path), "states_share")[0]
    assert (row["low"], row["high"]) == (0, 1)


def test_probe_of_an_untrained_bonus_is_left_out(tmp_path):
    make_run(tmp_path / "probed", probe={"bonus_noise_share": 0.25, "fresh": False}, seed=0)
    make_run(tmp_path / "untrained", probe={"bonus_noise_share": 0.75, "fresh": True}, seed=1)
    found = {run.path.name: run.value("bonus_noise_share") for run in results.load_runs(tmp_path)}
    assert found == {"probed": 0.25, "untrained": None}


def test_probe_without_noise_has_no_share_of_noise(tmp_path):
    measured = {"bonus_noise_share": 0.0, "count_correlation": 0.5, "fresh": False}
    make_run(tmp_path / "clean", probe={**measured, "noise": "none"}, seed=0)
    make_run(tmp_path / "sticky", probe={**measured, "noise": "sticky (strength 0.5)"}, seed=2)
    make_run(tmp_path / "under-boxes", probe={**measured, "noise": "random-box"}, seed=1)
    runs = {run.path.name: run for run in results.load_runs(tmp_path)}
    shares = {name: run.value("bonus_noise_share") for name, run in runs.items()}
    assert shares == {"clean": None, "sticky": None, "under-boxes": 0.0}
    assert runs["clean"].value("count_correlation") == 0.5


def test_probe_of_a_run_without_a_bonus_says_nothing_of_it(tmp_path):
    measured = {"bonus_noise_share": 0.0, "count_correlation": 0.0, "noise": "random-box"}
    make_run(tmp_path / "random", bonus="none", bonus_options={}, probe=measured)
    (run,) = results.load_runs(tmp_path)
    assert [run.value(key) for key in ("bonus_noise_share", "count_correlation")] == [None, None]


def test_methods_are_told_apart_by_settings_that_differ(tmp_path):
    options = dict(tiny_config(tmp_path).bonus_options)
    make_run(tmp_path / "a", bonus_options=options)
    make_run(tmp_path / "b", bonus_options={**options, "alpha1": 0.5})
    make_run(tmp_path / "c", bonus_options={**options, "alpha1": 0.7}, noise="pixel")
    make_run(tmp_path / "d", env="alien", bonus_options=options)
    methods = {run.path.name: run.method for run in results.load_runs(tmp_path)}
    assert methods["b"] == "db alpha1=0.5"
    assert methods["a"] == methods["d"] == f"db alpha1={options['alpha1']}"
    alone = {
        run.method for run in results.load_runs(tmp_path / "a", tmp_path / "c", tmp_path / "d")
    }
    assert alone == {"db"}  # alphas go by game and noise: that is not another method


def test_runs_in_two_sweeps_count_once(tmp_path):
    for name, seed in (("a/db-0", 0), ("a/db-1", 1), ("b/db-0", 0)):
        make_run(tmp_path / name, seed=seed, states=0.1 * (1 + seed))
    runs = results.load_runs(tmp_path)
    assert [run.status for run in runs] == ["finished", "finished", "duplicate"]
    assert "the same run as" in runs[2].reason
    assert aggregate.condition_table(runs, "states_share")[0]["mean"] == pytest.approx(0.15)
    assert {row["runs"] for row in aggregate.efficiency_table(runs, "states_share")} == {2}


def test_efficiency_is_the_iqm_along_training_as_far_as_the_longest_run(tmp_path):
    for seed, states in enumerate([0.1, 0.2, 0.3, 0.4, 1.0, 1.0, 1.0, 1.0]):
        make_run(tmp_path / f"db-{seed}", seed=seed, states=states)
    make_run(tmp_path / "rnd", bonus="rnd", bonus_options={}, steps=512)
    rows = aggregate.efficiency_table(results.load_runs(tmp_path), "states_share")
    last = {row["method"]: row for row in rows}
    assert last["rnd"]["steps"] == 512
    assert 240 < last["db"]["steps"] <= 256
    rise = (0.3 + 0.4 + 1.0 + 1.0) / 4 / 256
    assert last["db"]["iqm"] == pytest.approx(rise * last["db"]["steps"])


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TrainConfig)])
def test_duplicates_differ_in_nothing_that_changes_a_result(tmp_path, name):
    config = make_run(tmp_path / "a") / "config.toml"
    make_run(tmp_path / "b")
    values = tomllib.loads(config.read_text())
    old = values.get(name, "")  # a file names no variant where the fidelity chooses it
    other = {**old, "other": 5} if isinstance(old, dict) else "7" if isinstance(old, str) else 7
    assert other != old
    config.write_text(tomli_w.dumps({**values, name: other}))
    status = [run.status for run in results.load_runs(tmp_path)]
    same = name in (
        "out",
        "steps",
        "device",
        "engine",
        "deterministic",
        "env_workers",
        "threads",
        "checkpoint_minutes",
        "wandb",
    )
    assert sorted(status) == (["duplicate", "finished"] if same else ["finished", "finished"])


def test_runs_of_other_precisions_are_other_methods(tmp_path):
    for precision, states in (("bf16", 0.2), ("fp32", 0.4)):
        make_run(tmp_path / precision, precision=precision, states=states)
    runs = results.load_runs(tmp_path)
    assert [(run.method, run.status) for run in runs] == [
        ("db precision=bf16", "finished"),
        ("db precision=fp32", "finished"),
    ]
    rows = {row["method"]: row["mean"] for row in aggregate.condition_table(runs, "states_share")}
    assert rows == {
        "db precision=bf16": pytest.approx(0.2),
        "db precision=fp32": pytest.approx(0.4),
    }


def test_seed_that_ended_earlier_is_the_same_seed(tmp_path):
    early, _ = (
        make_run(tmp_path / "early", steps=128, states=0.1),
        make_run(tmp_path / "late", states=0.3),
    )
    config = early / "config.toml"
    config.write_text(config.read_text().replace("steps = 256", "steps = 128"))
    runs = results.load_runs(tmp_path)
    assert {run.path.name: run.status for run in runs} == {"early": "duplicate", "late": "finished"}
    assert aggregate.condition_table(runs, "states_share")[0]["mean"] == pytest.approx(0.3)


def test_method_name_stands_for_the_settings_it_implies(tmp_path):
    for ablation in ("none", "no-upper", "no-nce-no-momentum"):
        make_run(tmp_path / ablation, bonus_options={"ablation": ablation})
    make_run(tmp_path / "ours", bonus="db", bonus_options={}, fidelity="ours")
    methods = {run.path.name: run.method for run in results.load_runs(tmp_path)}
    assert methods["none"] == "db paper"
    assert methods["ours"] == "db ours"
    assert methods["no-upper"] == "db no-upper paper"
    assert methods["no-nce-no-momentum"] == "db no-nce-no-momentum paper"
    alone = results.load_runs(tmp_path / "none", tmp_path / "no-upper")
    assert {run.method for run in alone} == {"db", "db no-upper"}


def test_curves_and_normalised_scores_match_the_runs(tmp_path):
    random = MEASURED["breakout"].mean
    half = (random + 30.5) / 2
    run = results.load_runs(make_run(tmp_path / "run", env="breakout", score=half, states=1.0))[0]
    steps, values = run.curve("states_share")
    assert (steps.tolist(), values.tolist()) == ([64, 128, 192, 256], [0.25, 0.5, 0.75, 1])
    assert run.value("human_score") == pytest.approx(0.5)
    assert run.value("human_score_literature") == pytest.approx((half - 1.7) / 28.8)
    assert run.value("random_score") == pytest.approx(half / random - 1)
    assert run.curve("human_score")[1].tolist() == pytest.approx([0.5] * 4)
    assert run.value("area:states_share") == pytest.approx(0.625)
    assert run.value("nothing") is None
    assert run.curve("nothing")[0].size == 0


def test_score_without_an_episode_is_missing(tmp_path):
    run = results.load_runs(make_run(tmp_path / "run", env="breakout"))[0]
    assert run.value("score") is None
    assert run.value("human_score") is None
    assert all(math.isnan(v) for v in run.curve("human_score")[1])
    rows = aggregate.condition_table([run], "score")
    assert (rows[0]["runs"], rows[0]["left_out"]) == (0, 1)


def test_results_without_runs_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        results.load_runs(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        results.load_runs(tmp_path / "nowhere")


def write_older(folder):
    """Rewrite a run's config.toml as versions before reward_scale and RE3's distance wrote it."""
    path = folder / "config.toml"
    kept = [
        line
        for line in path.read_text().splitlines()
        if not line.startswith(("bonus_learning_rate", "distance"))
    ]
    older = ["normalize_bonus = true" if line.startswith("reward_scale") else line for line in kept]
    path.write_text("\n".join(older) + "\n")


def test_older_runs_are_not_taken_for_those_of_new_defaults(tmp_path):
    for bonus, settings in (("db", {"fidelity": "ours"}), ("re3", {"bonus_options": {}})):
        for age in ("older", "newer"):
            make_run(tmp_path / f"{bonus}-{age}", bonus=bonus, **settings)
        write_older(tmp_path / f"{bonus}-older")
    runs = {run.path.name: run for run in results.load_runs(tmp_path)}
    assert [run.status for run in runs.values()] == ["finished"] * 4
    assert runs["db-older"].config["reward_scale"] == "run"
    assert runs["db-newer"].config["reward_scale"] == "recent"
    assert runs["re3-older"].config["bonus_options"]["distance"] == "mean"
    assert runs["re3-newer"].config["bonus_options"]["distance"] == "kth"
    assert len({run.method for run in runs.values()}) == 4
    older = TrainConfig.from_toml(tmp_path / "re3-older" / "config.toml")
    assert older.bonus_options["distance"] == "mean"
    assert older.bonus_learning_rate == older.learning_rate


def test_run_with_fewer_steps_of_the_same_is_a_duplicate_that_says_so(tmp_path):
    config = make_run(tmp_path / "short", steps=128) / "config.toml"
    config.write_text(config.read_text().replace("steps = 256", "steps = 128", 1))
    make_run(tmp_path / "long")
    runs = {run.path.name: run for run in results.load_runs(tmp_path)}
    assert runs["short"].status == "duplicate"
    assert runs["short"].reason.endswith("long, with 128 of its 256 steps")
