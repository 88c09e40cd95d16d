"""The list of mutants: applicable as it stands, and judged rightly. `make mutants` runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import mutate
from tests.mutate import ROOT, Verdict, judge, read_mutants


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.why)
def test_mutant_can_be_applied(mutant):
    source = mutant.source()
    assert source != (ROOT / mutant.file).read_text(encoding="utf-8")
    if mutant.file.endswith(".py"):
        ast.parse(source)  # or every test would fail, whatever it looks at
    for test in mutant.tests:
        file, _, name = test.partition("::")
        tests = (ROOT / file).read_text(encoding="utf-8") if name else ""
        assert (ROOT / file).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in tests, test


def test_mutants_are_listed_once():
    mutants = read_mutants()
    assert (
        len({(m.file, m.replace, m.by) for m in mutants})
        == len({m.why for m in mutants})
        == len(mutants)
    )


@pytest.mark.parametrize(
    ("code", "output", "outcome"),
    [
        (0, "3 passed", "survived"),
        (1, "FAILED tests/test_a.py::test_b - assert 1 == 2\n1 failed", "killed"),
        (1, "FAILED tests/test_a.py::test_b - NameError: name 'x' is not defined", "broken"),
        (1, "FAILED tests/test_a.py::test_b - KeyError: 'x'\n1 failed", "killed"),
        (1, "ERROR tests/test_a.py::test_b - KeyError: 'x'\n1 error", "killed"),
        (2, "ERROR tests/test_a.py\n1 error", "broken"),
        (
            1,
            "FAILED a run: NameError\n=== short test summary info\n"
            "FAILED tests/test_a.py::test_b - assert 0",
            "killed",
        ),
        (None, "", "timed out"),
    ],
)
def test_judge_follows_from_what_pytest_printed(code, output, outcome):
    verdict = judge(code, output)
    assert verdict.outcome == outcome
    assert verdict.test in ("", "tests/test_a.py::test_b")


@pytest.mark.parametrize(("unmutated", "outcome"), [("survived", "killed"), ("killed", "broken")])
def test_referee_of_a_kill_runs_the_test_once_without_the_mutant(monkeypatch, unmutated, outcome):
    ran = []

    def unbroken(tests):
        ran.extend(tests)
        return Verdict(unmutated)

    monkeypatch.setattr(mutate, "unbroken", unbroken)
    referee = mutate.Referee()
    kill = Verdict("killed", "tests/test_a.py::test_b", "KeyError: '__main__'")
    assert [referee.review(kill).outcome for _ in range(2)] == [outcome] * 2
    assert ran == ["tests/test_a.py::test_b"]
    assert referee.review(Verdict("survived")).outcome == "survived"


SPAWNING = """
import multiprocessing
import os

def test_spawned_process_ends_well():
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    process.start()
    process.join()
    assert process.exitcode == 0
"""


def test_trial_whose_test_spawns_a_process_runs_it(tmp_path):
    (tmp_path / "test_spawning.py").write_text(SPAWNING)
    assert mutate.unbroken([str(tmp_path)]).outcome == "survived"


def test_mutant_whose_text_does_not_stand_once_is_refused(tmp_path: Path):
    mutant = read_mutants()[0]
    with pytest.raises(ValueError, match="stands there 0 times"):
        type(mutant)(mutant.file, "no such text", "", "nothing", ()).source()
