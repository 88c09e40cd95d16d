"""The judgement of snapshots, on rows that are made."""

from ssedb.theory import trust


def run(early, late, slope, inside):
    """Rows of a run whose rank correlations were one number, then another."""
    every = [f"{name}{end}" for name in trust.BONUSES for end in ("", "_visited")]
    others = {"steps": 1, "upper": 10.0, "inside": inside}
    others |= {f"{name}_exponent": slope for name in trust.BONUSES}
    return {"rows": [dict.fromkeys(every, at) | others for at in (early, early, late, late)]}


def test_judge_looks_at_the_second_half_of_training_and_asks_every_variant():
    good, bad = [run(-1.0, 0.9, -0.5, 9.0)], [run(0.9, 0.1, 0.0, 1.0)]
    assert {c.verdict for c in trust.judge("an env", {"a": good})} == {"holds"}
    assert {c.verdict for c in trust.judge("an env", {"a": good, "b": bad})} == {"fails"}
