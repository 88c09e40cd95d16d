"""The benchmarks run, at sizes that say nothing about speed."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from ssedb.compare.references import MEASURED

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def rows(script: str, **sizes: object) -> dict[str, list[str]]:
    """The table a script prints, by the first cell."""
    flags = [
        word
        for name, value in sizes.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *flags], capture_output=True, text=True, check=True
    )
    table = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")
    ]
    return {first: rest for first, *rest in table[1:]}


def test_pools():
    table = rows("pools.py", env="breakout", envs=4, steps=3, repeats=2)
    assert list(table) == ["one vector", "4 pools, one after the other", "4 pools, as they come"]
    assert table["one vector"][1] == "1.00"


def test_figures_exploration_are_drawn_from_the_log_and_small_enough_for_the_docs(tmp_path):
    script = BENCHMARKS / "figures_exploration.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], capture_output=True, check=True)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["bonus-blind-fade.png", "bonus-followed.png"]
    for name in drawn:
        assert 10_000 < (tmp_path / name).stat().st_size < 150_000
        assert (BENCHMARKS.parent / "docs" / name).stat().st_size < 150_000


def test_random_references_play_whole_episodes(tmp_path):
    out = tmp_path / "references.json"
    table = rows("random_references.py", games="breakout", episodes=20, processes=1, out=out)
    found = json.loads(out.read_text())["games"]
    assert list(table) == list(found) == ["breakout"]
    assert found["breakout"]["episodes"] == 20
    assert 100 < found["breakout"]["mean_length"] < 400
    known = MEASURED["breakout"]
    assert found["breakout"]["standard_error"] < 0.6
    doubt = math.hypot(found["breakout"]["standard_error"], known.standard_error)
    assert abs(found["breakout"]["mean"] - known.mean) < 4 * doubt


def test_rllte_bonuses():
    pytest.importorskip("rllte", reason="rllte-core is not installed (requirements/rivals.txt)")
    table = rows("rllte_bonuses.py", steps=3, envs=2, batch_size=4, models=2, burn_in=1, repeats=1)
    assert list(table) == [
        f"{bonus}, {part}" for bonus in ("icm", "rnd", "disagreement") for part in ("pay", "learn")
    ]
    encoder = (
        2 * (400 * 4 * 64 * 32 + 81 * 32 * 16 * 64 + 49 * 64 * 9 * 64 + 3136 * 512) / 1e9
    )  # GFLOP of a stack
    rllte_flops = float(table["rnd, pay"][3])
    assert rllte_flops == pytest.approx(
        3 * 2 * 2 * encoder, abs=0.05
    )  # predictor and target on 3 x 2 stacks


def test_sb3_ppo():
    pytest.importorskip(
        "stable_baselines3", reason="Stable-Baselines3 is not installed (requirements/rivals.txt)"
    )
    table = rows(
        "sb3_ppo.py", num_envs=2, rollout_steps=4, minibatch_envs=1, ppo_epochs=1, repeats=1
    )
    assert list(table) == ["emulators alone", "Stable-Baselines3", "ours"]
    speeds = [float(row[0].replace(",", "")) for row in table.values()]
    assert float(table["ours"][2]) == pytest.approx(speeds[2] / speeds[1], rel=0.05)
