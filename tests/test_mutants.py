"""The list of mutants: applicable as it stands, and judged rightly. `make mutants` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutate import ROOT, judge, read_mutants


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.why)
def test_mutant_can_be_applied(mutant):
    assert mutant.source() != (ROOT / mutant.file).read_text(encoding="utf-8")
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
        (2, "ERROR tests/test_a.py\n1 error", "broken"),
        (None, "", "timed out"),
    ],
)
def test_judge_follows_from_what_pytest_printed(code, output, outcome):
    assert judge(code, output)[0] == outcome


def test_mutant_whose_text_does_not_stand_once_is_refused(tmp_path: Path):
    mutant = read_mutants()[0]
    with pytest.raises(ValueError, match="stands there 0 times"):
        type(mutant)(mutant.file, "no such text", "", "nothing", ()).source()
