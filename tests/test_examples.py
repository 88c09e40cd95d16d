"""Every script in examples/ runs, at sizes that teach nothing."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = {
    "cleanrl_ppo.py": ["--total-timesteps", "128", "--num-steps", "8", "--minibatch-size", "32"],
    "gymnasium_loop.py": ["--steps", "2048"],
    "rlexplore_ppo.py": ["--steps", "2048"],
    "sb3_dqn.py": ["--steps", "1040", "--out", "agent"],
    "sb3_ppo.py": ["--steps", "2048", "--out", "model.zip"],
    "torchrl_ppo.py": ["--steps", "1024"],
}
"""Flags that make each script short."""
PRINTED = {
    "cleanrl_ppo.py": r"2: return nan, bonus \d\.\d+",
    "gymnasium_loop.py": r"step 2048: \d\.\d+ scaled",
    "rlexplore_ppo.py": r"total_timesteps +\| 2048",
    "sb3_dqn.py": r"the bonus has learned from 1 rollouts",
    "sb3_ppo.py": r"the bonus has learned from 2 rollouts",
    "torchrl_ppo.py": r"intrinsic reward \d\.\d+, episodes \d+",
}
"""What shows that each has come to its end."""


def test_every_example_is_run_here():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_example_runs_to_its_end(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SIZES[name]])
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert re.search(PRINTED[name], capsys.readouterr().out)


@pytest.mark.parametrize("name", SIZES)
def test_example_is_short(name):
    lines = (EXAMPLES / name).read_text().count("\n")
    assert lines < (160 if name == "cleanrl_ppo.py" else 60)


def test_cleanrl_example_marks_the_lines_that_matter():
    assert len(re.findall("  # bonus", (EXAMPLES / "cleanrl_ppo.py").read_text())) == 10
