"""Every claim that the paper proves holds, and a wrong constant would be noticed."""

import json

import numpy as np
import pytest

from ssedb import cli
from ssedb.cli.theory import Theory
from ssedb.theory import claims, contrast, gain, report


def ignore(share):
    pass


@pytest.mark.parametrize("part", ["theorem1", "theorem2"])
def test_claims_that_are_proved_hold(part):
    found, data = report.PARTS[part](True, 0, ignore)
    assert {claim.verdict for claim in found} == {"holds"}
    json.dumps(data)


def test_infonce_claims_hold(monkeypatch):
    monkeypatch.setattr(claims, "QUICK", ((8,), 1600, 20))
    found, data = claims.infonce(True, 0, ignore)
    assert [claim.verdict for claim in found] == ["holds", "holds"]
    assert len(data["rows"]) == 10


@pytest.mark.parametrize(
    ("name", "wrong", "part"),
    [
        ("ucb_bounds", lambda u, c: (np.sqrt(c / 2 * u), np.sqrt(c / 2 * u)), "theorem1"),
        ("ucb_bounds", lambda u, c: (np.sqrt(c / 4 * u), np.sqrt(c / 4 * u)), "theorem1"),
        ("information_gain", lambda u, c: c * np.log1p(u), "theorem1"),
        ("count_bonus", lambda n, s, lam: np.sqrt(s / 2) / np.sqrt(n + 1e-9), "theorem2"),
        ("count_bonus", lambda n, s, lam: np.sqrt(s / 4) / np.sqrt(n + lam), "theorem2"),
    ],
)
def test_claim_with_a_wrong_constant_is_noticed(monkeypatch, name, wrong, part):
    monkeypatch.setattr(gain, name, wrong)
    found, _ = report.PARTS[part](True, 0, ignore)
    assert "fails" in {claim.verdict for claim in found}


def test_closed_form_that_is_off_by_a_millionth_is_noticed():
    draws = gain.random_problems(np.random.default_rng(0), 200)
    assert claims.closed_form(draws, "").verdict == "holds"
    off = draws._replace(gains=draws.gains * (1 + 1e-6))
    assert claims.closed_form(off, "").verdict == "fails"


@pytest.mark.parametrize(("value", "verdict"), [(1.25, "holds"), (1.35, "fails")])
def test_infonce_claims_leave_an_estimate_three_standard_errors(monkeypatch, value, verdict):
    estimate = contrast.Estimate(value, 0.1, mutual_information=1.0)
    monkeypatch.setattr(contrast, "nce_estimate", lambda *args: estimate)
    monkeypatch.setattr(contrast, "trained_critic", lambda *args: None)
    assert [claim.verdict for claim in claims.infonce(True, 0, ignore)[0]] == [verdict] * 2


def test_theory_command_writes_the_table_the_figures_and_the_numbers(tmp_path, capsys):
    assert (
        cli.main(
            ["theory", "--parts", "theorem2", "theorem1", "--quick", "--out", str(tmp_path / "t")]
        )
        == 0
    )
    said = capsys.readouterr()
    assert "theorem2 100%" in said.err
    assert "sqrt(I)" in said.out
    assert (tmp_path / "t" / "theorem1.png").stat().st_size > 10_000
    saved = json.loads((tmp_path / "t" / "theory.json").read_text())
    assert list(saved["parts"]) == ["theorem2", "theorem1"]
    assert saved["parts"]["theorem1"]["claims"][1]["verdict"] == "holds"


def test_theory_command_has_every_part_with_a_figure():
    assert set(Theory().parts) == set(report.PARTS) == set(report.FIGURES)
