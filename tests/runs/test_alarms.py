"""Alarms about the policy: crafted metrics, ends of real runs, and a tiny run that collapses."""

import json
import math
import statistics

import pytest

import ssedb
from ssedb.runs.alarms import UPDATES_UNDER_LIMIT, Watch
from ssedb.runs.metrics import read_metrics
from tests.helpers import Notes
from tests.toy import tiny_config

STEPS = 4096
SETTINGS = {"reward_scale": "run", "entropy_coef": 0.001, "learning_rate": 1e-3}


def rows(explained, entropy):
    """Metrics of one update each; a number stands for as many as the other has."""
    length = len(explained) if isinstance(explained, list) else len(entropy)
    explained = explained if isinstance(explained, list) else [explained] * length
    entropy = entropy if isinstance(entropy, list) else [entropy] * length
    return [
        {"steps": STEPS * (i + 1), "explained_variance": e, "entropy": h}
        for i, (e, h) in enumerate(zip(explained, entropy, strict=True))
    ]


def alarms(explained, entropy):
    return Watch(rows(explained, entropy)).alarms


def test_alarm_healthy_run_with_an_untrained_value_at_its_start_is_silent():
    begins = [-0.8] * 25 + [0.5] * 300
    assert alarms(begins, [1.6 - 0.002 * i for i in range(325)]) == []


def test_alarm_noisy_rows_are_silent():
    noisy = [-20.0 if i % 3 == 0 else 0.4 for i in range(300)]  # a third of them
    assert alarms(noisy, 1.0) == []
    assert alarms(0.4, [0.0 if i % 3 == 0 else 0.6 for i in range(300)]) == []


def test_alarm_explained_variance_that_stays_negative_names_number_duration_and_remedy():
    (alarm,) = alarms([0.5] * 100 + [-0.5] * 200, 1.0)
    assert (alarm.metric, alarm.value, alarm.stands) == ("explained_variance", -0.5, True)
    assert alarm.since == 107 * STEPS  # the median of 15 follows half of that later
    assert alarm.until == 300 * STEPS
    assert alarm.text(SETTINGS) == (
        f"explained variance of the value -0.50: it has been under 0 for {193 * STEPS:,} steps, so "
        "the advantages are mostly the value's errors; try --reward-scale recent or a lower "
        "--learning-rate than 0.001"
    )


def test_alarm_remedy_leaves_out_what_the_run_has():
    (alarm,) = alarms(0.5, [0.01] * 100)
    assert alarm.text({**SETTINGS, "reward_scale": "recent"}).endswith(
        "so the policy hardly varies its actions any more; "
        "try a higher --entropy-coef than 0.001 or a lower --learning-rate than 0.001"
    )


@pytest.mark.parametrize(
    ("explained", "entropy", "found"),
    [
        (0.64, 0.942, []),  # ends of runs in benchmarks/log/2026-11-16-exploration.jsonl
        (0.929, 0.126, []),  # RND, whole-run scale: narrow, not collapsed
        (0.09, 1.084, []),  # the lowest of the oracle, in 2026-11-16-passes-and-memory.jsonl
        (-0.542, 0.605, ["explained_variance"]),  # RND, whole-run scale, seed 1
        (0.3, 0.05, ["entropy"]),  # the highest of the second pilot's collapsed policies
        (-10.0, 0.01, ["explained_variance", "entropy"]),
    ],
)
def test_alarm_limits_tell_the_measured_runs_apart(explained, entropy, found):
    assert Watch(rows([explained] * 200, entropy)).standing == found


def test_alarm_begins_after_enough_updates_and_is_reported_once():
    watch, told = Watch(), []
    sick_twice = [-1.0] * 100 + [1.0] * 30 + [-1.0] * 100
    for row in rows(sick_twice, 1.0):
        told += [row["steps"] // STEPS for _ in watch.see(row)]
    assert told == [UPDATES_UNDER_LIMIT]
    first, second = watch.alarms
    assert (first.since, first.until, first.stands) == (0, 107 * STEPS, False)
    assert (second.since, second.until, second.stands) == (137 * STEPS, 230 * STEPS, True)
    assert f"was under 0 for {107 * STEPS:,} steps, up to step {107 * STEPS:,}" in first.text({})


def test_alarm_short_dip_is_silent():
    assert alarms([0.5] * 100 + [-1.0] * (UPDATES_UNDER_LIMIT - 1) + [0.5] * 100, 1.0) == []
    assert len(alarms([0.5] * 100 + [-1.0] * UPDATES_UNDER_LIMIT + [0.5] * 100, 1.0)) == 1


def test_alarm_policy_that_is_not_trained_is_silent():
    uniform = [{"steps": STEPS * i, "explained_variance": -3.2} for i in range(1, 300)]
    assert Watch(uniform).alarms == []
    assert alarms(-3.2, [math.nan] * 300) == []


def collapsing(out, **changes):
    """A policy that hardly clipped updates make deterministic; seeds 0 to 7 all raise the alarm."""
    options = {"feature_dim": 16, "channels": (4, 4, 4)}
    settings = dict(
        env="rooms-small", bonus="rnd", bonus_options=options, num_envs=4, rollout_steps=4,
        minibatch_envs=4, ppo_epochs=4, bonus_epochs=1, obs_norm_steps=64, learning_rate=3e-3,
        clip=0.9, entropy_coef=0.0, reward_scale="run",
    )  # fmt: skip
    return tiny_config(out, **{**settings, **changes})


def test_alarm_of_a_collapsing_run_is_reported_logged_and_kept_over_a_resume(tmp_path):
    out, progress = tmp_path / "run", Notes()
    result = ssedb.train(collapsing(out, steps=16 * 130), progress)
    (told,) = [
        note for note in progress.notes if "ALARM" in note and "entropy of the policy" in note
    ]
    assert "entropy of the policy 0.00: it has been under 0.08 for" in told
    assert "a higher --entropy-coef than 0" in told
    logged = read_metrics(out)
    begun = [row["steps"] for row in logged if "entropy" in row.get("alarms", [])]
    assert begun == list(range(begun[0], 2081, 16))
    assert told.startswith(f"ALARM at step {begun[0]:,}:")
    saved = json.loads((out / "summary.json").read_text())
    (kept,) = [alarm for alarm in saved["alarms"] if alarm["metric"] == "entropy"]
    assert (kept["stands"], kept["until"]) == (True, 2080)
    assert result.summary["alarms"] == saved["alarms"]

    again = Notes()
    resumed = ssedb.resume(out, again, steps=16 * 134)
    assert not [note for note in again.notes if "entropy of the policy" in note]
    (longer,) = [a for a in resumed.summary["alarms"] if a["metric"] == "entropy"]
    assert (longer["since"], longer["until"]) == (kept["since"], 2144)


def test_alarm_real_run_of_a_uniform_policy_is_silent(tmp_path):
    config = collapsing(tmp_path / "run", bonus="none", bonus_options={}, steps=16 * 70)
    result = ssedb.train(config)
    explained = [row["explained_variance"] for row in read_metrics(tmp_path / "run")]
    assert statistics.median(explained) < 0  # as in a sick run
    assert result.summary["alarms"] == []
