"""Every file of the ladder resolves to the runs it promises."""

from pathlib import Path

import pytest

from ssedb import GAMES
from ssedb.bonuses import list_bonuses
from ssedb.sweep.grid import read_grid

FOLDER = Path(__file__).parent.parent.parent / "experiments"
RUNS = {
    "smoke": 12,
    "sample": 12,
    "quick": 210,
    "rooms": 5 * 5 * 12,
    "atari": 3 * 4 * 8 * 6,
    "atari-mini": 72,
    "atari-variants": 4,
    "paper-main": 18 * 4 * 3,
    "paper-random-box": 18 * 4 * 3,
    "paper-pixel": 18 * 4 * 3,
    "paper-sticky": 18 * 4 * 3,
    "paper-ablation": 5 * 2 * 3,
    "paper-re3": 6 * 3 * 2 * 3,
    "paper-montezuma": 4 * 3,
}


def test_experiments_list_is_complete():
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_experiments_all_resolve(name):
    grid = read_grid(FOLDER / f"{name}.toml")
    assert grid.name == name
    assert len(grid.runs) == RUNS[name]
    if name.startswith("paper"):
        assert all(
            run.config.steps == 100_000_000 and run.config.num_envs == 128 for run in grid.runs
        )
        assert {run.config.seed for run in grid.runs} == {0, 1, 2}
    if name in ("paper-main", "paper-random-box", "paper-pixel", "paper-sticky"):
        assert {run.config.env for run in grid.runs} == set(GAMES)


def test_experiments_quick_has_every_bonus_but_those_that_came_after_its_results():
    newer = {"db-ensemble", "e3b", "lbs", "lpm"}
    assert {run.config.bonus for run in read_grid(FOLDER / "quick.toml").runs} == set(
        list_bonuses()
    ) - newer


def test_experiments_atari_gives_every_bonus_our_recipe_but_db_its_papers():
    runs = read_grid(FOLDER / "atari.toml").runs
    recipes = {(run.config.bonus, run.config.fidelity, run.config.reward_scale) for run in runs}
    ours = {"db-ensemble", "icm", "rnd", "disagreement", "none"}
    assert recipes == {("db", "paper", "run")} | {(bonus, "ours", "recent") for bonus in ours}
    first_seed = runs[: len(runs) // 3]
    assert {run.config.seed for run in first_seed} == {0}
