"""Grid files: what they mean, and what is said about a wrong one before anything starts."""

import copy
import dataclasses
from pathlib import Path

import pytest

from ssedb.bonuses import list_bonuses
from ssedb.cli.sweep import parse_override
from ssedb.compare.results import load_runs
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.sweep.grid import read_grid, run_id
from ssedb.sweep.plan import write_plan
from tests.sweep.grids import TOY, write_grid


def test_grid_combines_its_axes(tmp_path):
    grid = read_grid(write_grid(tmp_path), tmp_path / "runs")
    assert (grid.name, grid.probe, len(grid.runs)) == ("toy", False, 8)
    assert len({run.id for run in grid.runs}) == 8
    first = grid.runs[0]
    assert (first.config.env, first.config.noise, first.config.bonus, first.config.seed) == (
        "rooms-small",
        "none",
        "db",
        0,
    )
    assert first.config.num_envs == 4
    assert first.name == f"rooms-small-none-db-s0-{first.id[:8]}"
    assert first.folder == tmp_path / "runs" / first.name


def test_run_id_depends_on_what_is_computed_alone(tmp_path):
    path = write_grid(tmp_path)
    here, there = (
        read_grid(path, tmp_path / "a"),
        read_grid(path, tmp_path / "b", {"device": "cpu"}),
    )
    assert [run.id for run in here.runs] == [run.id for run in there.runs]
    assert all(run_id(run.config) == run.id for run in here.runs)
    sooner = read_grid(
        write_grid(tmp_path, TOY.replace("checkpoint_minutes = 0", "checkpoint_minutes = 9"))
    )
    assert [run.id for run in here.runs] == [run.id for run in sooner.runs]
    longer = read_grid(write_grid(tmp_path, TOY.replace("steps = 96", "steps = 97")))
    assert not {run.id for run in here.runs} & {run.id for run in longer.runs}


CHANGES_NO_RESULT = {"out", "device", "engine", "deterministic", "env_workers", "threads"}
CHANGES_NO_RESULT |= {"checkpoint_minutes", "wandb"}


def with_other(config, name):
    """The same settings but for one, which holds something that it could not hold otherwise."""
    other = copy.copy(config)
    object.__setattr__(other, name, "other")
    return other


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TrainConfig)])
def test_run_id_notices_every_setting_that_changes_a_result(name):
    config = TrainConfig(env="rooms-small", preset="rooms")
    assert (run_id(with_other(config, name)) == run_id(config)) == (name in CHANGES_NO_RESULT)


@pytest.mark.parametrize("bonus", list_bonuses())
def test_run_id_notices_every_option_of_a_bonus(bonus):
    config = TrainConfig(env="rooms-small", preset="rooms", bonus=bonus)
    ids = {run_id(config)}
    for name in config.bonus_options:
        other = copy.copy(config)
        object.__setattr__(other, "bonus_options", {**config.bonus_options, name: "other"})
        ids.add(run_id(other))
    assert len(ids) == 1 + len(config.bonus_options)


def test_precision_is_an_axis(tmp_path):
    given = {"precision": ["fp32", "tf32", "bf16"], "noise": "none", "bonus": "db"}
    runs = read_grid(write_grid(tmp_path), overrides=given).runs
    found = [(run.config.precision, run.config.seed) for run in runs]
    assert sorted(found) == sorted(
        (precision, seed) for precision in given["precision"] for seed in (0, 1)
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("engine", '["eager", "fast"]'),
        ("device", '["cpu"]'),
        ("checkpoint_minutes", "[0, 5]"),
        ("wandb", "[true, false]"),
    ],
    ids=["engine", "device", "checkpoint_minutes", "wandb"],
)
def test_axis_that_changes_no_result_is_refused(tmp_path, name, values):
    text = TOY.replace("checkpoint_minutes = 0\n", "") + f"{name} = {values}\n"
    with pytest.raises(ConfigError) as caught:
        read_grid(write_grid(tmp_path, text))
    assert f"{name}: changes no result, so [" in str(caught.value)
    assert str(caught.value).endswith("makes no different runs; set one value, as a setting")
    assert "\n" not in str(caught.value)


def test_run_is_found_under_another_name(tmp_path):
    """Another version of ssedb, or a grid file with fewer axes, named its folder."""
    path, root = write_grid(tmp_path), tmp_path / "runs"
    runs = read_grid(path, root).runs
    old, stranger = (
        root / "rooms-small-none-db-s0-01234567",
        root / "rooms-small-none-db-s0-76543210",
    )
    for folder, config in (
        (old, runs[0].config),
        (stranger, dataclasses.replace(runs[0].config, precision="fp32")),
    ):
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(config.to_toml())
    (root / "damaged").mkdir()
    (root / "damaged" / "config.toml").write_text("env = ")
    again = read_grid(path, root).runs
    assert again[0].folder == old
    assert [run.folder for run in again[1:]] == [run.folder for run in runs[1:]]
    runs[0].folder.mkdir()
    (runs[0].folder / "config.toml").write_text(runs[0].config.to_toml())
    assert read_grid(path, root).runs[0].folder == runs[0].folder  # its own name comes first


def test_axis_of_an_option_applies_to_the_bonuses_that_have_it(tmp_path):
    text = TOY + "alpha1 = [0.1, 0.2]\n[bonus_options.db]\nalpha2 = 0.7\n"
    runs = read_grid(write_grid(tmp_path, text)).runs
    by_bonus = {
        bonus: [run for run in runs if run.config.bonus == bonus] for bonus in ("db", "rnd")
    }
    assert len(by_bonus["db"]) == 8
    assert len(by_bonus["rnd"]) == 4  # once each: rnd has no alpha1
    assert {run.config.bonus_options["alpha1"] for run in by_bonus["db"]} == {0.1, 0.2}
    assert {run.config.bonus_options["alpha2"] for run in by_bonus["db"]} == {0.7}
    assert any("db-alpha1-0.2-s1" in run.name for run in runs)


def test_variant_makes_no_second_run_of_a_noise_that_has_none(tmp_path):
    overrides = {"noise": ["none", "random-box"], "noise_variant": ["fill", "wrap"]}
    grid = read_grid(write_grid(tmp_path), tmp_path / "runs", {**overrides, "bonus": ["db"]})
    found = {(run.config.noise, run.config.noise_variant) for run in grid.runs}
    assert found == {("none", ""), ("random-box", ""), ("random-box", "wrap")}
    assert len(grid.runs) == 3 * 2  # seeds
    assert "rooms-small-none-db-s0" in [run.name[:22] for run in grid.runs]
    with pytest.raises(ConfigError, match="noise_variant='fill': NoNoise has no variants"):
        read_grid(write_grid(tmp_path), None, {**overrides, "noise": ["none", "pixel"]})


def test_variant_applies_to_the_noises_that_have_it(tmp_path):
    overrides = {"noise": ["sticky", "pixel"], "noise_variant": ["zeros", "frame"]}
    grid = read_grid(write_grid(tmp_path), None, {**overrides, "bonus": ["rnd"], "seed": [0]})
    found = [(run.config.noise, run.config.noise_variant) for run in grid.runs]
    assert sorted(found) == [("pixel", ""), ("pixel", "zeros"), ("sticky", ""), ("sticky", "frame")]


def test_plan_as_it_is_written_is_read_by_stats(tmp_path):
    overrides = {"noise": ["none", "random-box"], "noise_variant": ["fill", "wrap"]}
    grid = read_grid(write_grid(tmp_path), tmp_path / "runs", {**overrides, "bonus": ["db"]})
    write_plan(grid, tmp_path / "runs", 1)
    runs = load_runs(tmp_path / "runs")
    assert {(run.status, run.reason) for run in runs} == {("missing", "planned, not begun")}
    assert {run.noise for run in runs} == {"none", "random-box", "random-box (wrap)"}


def test_grid_of_a_fidelity_takes_the_options_of_the_bonus_that_it_implies(tmp_path):
    settings = TOY.replace('preset = "rooms"', 'preset = "rooms"\nfidelity = "ours"')
    settings = settings.replace('bonus = ["db", "rnd"]', "models = [2, 5]")
    text = settings + "[bonus_options.db-ensemble]\ntau = 0.5\n"
    runs = read_grid(write_grid(tmp_path, text)).runs
    found = [(run.config.bonus, run.config.bonus_options["models"]) for run in runs]
    assert sorted(found) == [("db-ensemble", models) for models in (2, 5) for _ in range(4)]
    assert {run.config.bonus_options["tau"] for run in runs} == {0.5}
    with pytest.raises(ConfigError, match=r"for a bonus of the grid \(db-ensemble\)"):
        read_grid(write_grid(tmp_path, settings + "[bonus_options.db]\ntau = 0.5\n"))


def test_axis_of_fidelities_takes_options_of_every_bonus_that_they_imply(tmp_path):
    text = TOY.replace('bonus = ["db", "rnd"]', 'fidelity = ["paper", "ours"]\nmodels = [2, 5]')
    text += "[bonus_options.db]\ntau = 0.5\n[bonus_options.db-ensemble]\ntau = 0.25\n"
    configs = [run.config for run in read_grid(write_grid(tmp_path, text)).runs]
    found = {(c.fidelity, c.bonus_options["tau"], c.bonus_options.get("models")) for c in configs}
    assert found == {("paper", 0.5, None), ("ours", 0.25, 2), ("ours", 0.25, 5)}
    assert len(configs) == 4 + 8


@pytest.mark.parametrize("axis", [True, False])
def test_grid_takes_bonuses_by_their_names_with_underscores(tmp_path, axis):
    text = TOY.replace('"db", "rnd"', '"db_ensemble", "rnd"')
    text += (
        '[bonus_options.db_ensemble]\ntau = 0.5\n[[exclude]]\nbonus = ["random_features", "rnd"]'
    )
    if not axis:
        text = TOY.replace('bonus = ["db", "rnd"]\n', "")
        text = text.replace("[axes]", 'bonus = "db_ensemble"\n[axes]')
        text += "[bonus_options.db_ensemble]\ntau = 0.5\n"
    runs = read_grid(write_grid(tmp_path, text)).runs
    found = {(run.config.bonus, run.config.bonus_options["tau"]) for run in runs}
    assert found == {("db-ensemble", 0.5)}
    with pytest.raises(ConfigError, match=r"line \d+, tau=2: must be at most 1"):
        read_grid(write_grid(tmp_path, text.replace("tau = 0.5", "tau = 2")))
    with pytest.raises(ConfigError, match="two tables for one bonus"):
        read_grid(write_grid(tmp_path, text + "\n[bonus_options.db-ensemble]\ntau = 0.5\n"))


def test_grid_excludes_combinations(tmp_path):
    text = (
        TOY
        + '[[exclude]]\nbonus = "rnd"\nnoise = "none"\n[[exclude]]\nseed = [1, 2]\nbonus = "db"\n'
    )
    runs = read_grid(write_grid(tmp_path, text)).runs
    left = {(run.config.noise, run.config.bonus, run.config.seed) for run in runs}
    assert left == {
        ("none", "db", 0),
        ("random-box", "db", 0),
        ("random-box", "rnd", 0),
        ("random-box", "rnd", 1),
    }


@pytest.mark.parametrize("wanted", ["[8, 16, 16]", "[[8, 16, 16], [2, 4, 4]]"])
def test_exclude_of_a_setting_that_is_a_list_matches_its_value(tmp_path, wanted):
    text = TOY + "policy_channels = [[8, 16, 16], [4, 8, 8]]\n"
    text += f"[[exclude]]\npolicy_channels = {wanted}\n"
    runs = read_grid(write_grid(tmp_path, text)).runs
    assert {run.config.policy_channels for run in runs} == {(4, 8, 8)}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("steps = 96", "setps = 96", "setps: a run has no such setting; did you mean steps"),
        ("steps = 96", "alpha1 = 1", "stand under [bonus_options.BONUS]"),
        ("steps = 96", "steps = -1", "toy.toml, line 7, steps=-1: must be above 0"),
        ("steps = 96", "steps = 1.5", "steps=1.5: must be a whole number"),
        (
            '"random-box"',
            '"fog"',
            "the run with noise=fog, bonus=db, seed=0: noise='fog': use one of none",
        ),
        ('"rnd"', '"luck"', "line 17, bonus: bonus='luck': use one of"),
        ("seed = [0, 1]", "seed = 3", "line 18, seed: an axis is a list of values, not 3"),
        ("seed = [0, 1]", "seed = []", "an axis is a list of values"),
        ("seed = [0, 1]", "seed = [1, 1]", "seed: a value is there twice"),
        ("seed = [0, 1]", "seed = [0]\nsteps = [32]", "steps: is both a setting and an axis"),
        (
            "seed = [0, 1]",
            "sed = [0, 1]",
            "line 18, sed: is neither a setting of a run nor an option",
        ),
        ("[axes]", "[axis]", "line 15, axis: there is no such key; use name, probe, settings"),
        (
            'name = "toy"',
            'name = "../toy"',
            "line 2, name: '../toy' must name a folder under runs/; use letters, or --out",
        ),
        *(
            ('name = "toy"', f'name = "{name}"', f"line 2, name: {shown!r} must name a folder")
            for name, shown in (("..", ".."), (".", "."), ("", ""), ("a\\u001b", "a\x1b"))
        ),
        ('name = "toy"', "name = 3", "line 2, name: must be text, not 3"),
        ('name = "toy"', "name = ", "is not TOML: Invalid value (at line 2"),
        (
            "[axes]",
            "[bonus_options.icm]\neta = 1\n[axes]",
            "icm: bonus_options holds a table for a bonus of the grid (db, rnd)",
        ),
        (
            "[axes]",
            "[bonus_options.db]\nalpa1 = 1\n[axes]",
            "line 16, alpa1: db has no such option; did you mean alpha1",
        ),
        (
            "[axes]",
            "[bonus_options.db]\nalpha1 = -1\n[axes]",
            "line 16, alpha1=-1: must be 0 or more",
        ),
        (
            'bonus = ["db", "rnd"]\nseed = [0, 1]',
            'bonus = ["db", "db-ensemble"]\n[bonus_options.db]\nalpha1 = 1\n'
            "[bonus_options.db-ensemble]\nalpha1 = -1",
            "line 21, alpha1=-1: must be 0 or more",
        ),
        (
            "[axes]",
            '[[exclude]]\nbonus = "icm"\n[axes]',
            "exclude: {'bonus': 'icm'} matches no run",
        ),
        (
            "[axes]",
            "[[exclude]]\nsteps = 3\n[axes]",
            "exclude: {'steps': 3} must name values of axes",
        ),
        ('name = "toy"', "probe = 1", "probe: must be true or false, not 1"),
    ],
)
def test_grid_with_a_mistake_names_it(tmp_path, before, after, message):
    text = TOY.replace(before, after)
    assert text != TOY
    with pytest.raises(ConfigError) as caught:
        read_grid(write_grid(tmp_path, text))
    assert message in str(caught.value)
    assert str(tmp_path / "toy.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_overrides_replace_settings_and_axes(tmp_path):
    path = write_grid(tmp_path, TOY + '[[exclude]]\nbonus = "rnd"\nnoise = "none"\n')
    given = dict(map(parse_override, ["steps=64", "seed=[7]", 'bonus=["db"]', "preset=small"]))
    runs = read_grid(path, overrides=given).runs
    assert {
        (run.config.steps, run.config.seed, run.config.bonus, run.config.preset) for run in runs
    } == {(64, 7, "db", "small")}
    assert len(runs) == 2
    for wrong in ("steps", "=3"):
        with pytest.raises(ConfigError, match="write KEY=VALUE"):
            parse_override(wrong)
    for wrong, message in {
        "luck=3": "--set luck: is neither a setting of a run nor an option",
        "steps=many": "--set steps='many': must be a whole number",
        "seed=[-1]": "--set seed=-1: must be 0 or more",
        "bonus=dbb": "--set bonus: bonus='dbb': did you mean db",
    }.items():
        with pytest.raises(ConfigError) as caught:
            read_grid(path, overrides=dict([parse_override(wrong)]))
        assert str(caught.value).startswith(message)


def test_override_that_leaves_a_bonus_out_leaves_its_options_unused(tmp_path):
    path = write_grid(tmp_path, TOY + "[bonus_options.db]\nalpha2 = 0.7\n")
    runs = read_grid(path, overrides={"bonus": ["rnd"]}).runs
    assert {run.config.bonus for run in runs} == {"rnd"}
    text = TOY.replace('bonus = ["db", "rnd"]\n', "") + "[bonus_options.db]\nalpha2 = 0.7\n"
    runs = read_grid(write_grid(tmp_path, text), overrides={"fidelity": "ours"}).runs
    assert {run.config.bonus for run in runs} == {"db-ensemble"}


def test_override_may_make_an_axis(tmp_path):
    given = ["seed=3", "noise=none", "bonus=db", "alpha1=0.5", "policy_channels=[4, 8, 8]"]
    given += ["steps=[1e4, 2e4]", 'ablation=["none", "no-nce"]']
    runs = read_grid(write_grid(tmp_path), overrides=dict(map(parse_override, given))).runs
    found = {(run.config.steps, run.config.bonus_options["ablation"]) for run in runs}
    assert found == {
        (steps, ablation) for steps in (10_000, 20_000) for ablation in ("none", "no-nce")
    }
    assert len(runs) == 4
    assert {(run.config.seed, run.config.policy_channels) for run in runs} == {(3, (4, 8, 8))}
    assert {run.config.bonus_options["alpha1"] for run in runs} == {0.5}


def test_grid_of_an_empty_file_is_refused(tmp_path):
    (tmp_path / "grid.toml").write_text("")
    with pytest.raises(ConfigError, match=r"grid.toml has no \[settings\] and no \[axes\]"):
        read_grid(tmp_path / "grid.toml")
    assert len(read_grid(tmp_path / "grid.toml", overrides={"seed": 3}).runs) == 1


def test_grid_of_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.toml: No such file"):
        read_grid(tmp_path / "nowhere.toml")


def test_grid_of_a_device_is_refused():
    with pytest.raises(ConfigError, match=r"/dev/zero is a device; name a grid file"):
        read_grid(Path("/dev/zero"))
