"""The state of a bottleneck: open, not opened yet, shut."""

import numpy as np

from ssedb.report.collapse import bottleneck


def curves(upper, nce, chance=-5.0, length=40):
    return {
        key: np.full(length, value)
        for key, value in (("i_upper", upper), ("i_nce", nce), ("i_nce_chance", chance))
    }


def test_bottleneck_whose_contrast_beats_blind_guessing_is_open():
    assert bottleneck(curves(20.0, -1.0)).state == "open"
    assert bottleneck(curves(0.001, -4.0)).state == "open"
    late = curves(0.001, -5.0)
    late["i_upper"][-4:] = 5.0
    late["i_nce"][-4:] = -2.0
    assert bottleneck(late).state == "open"  # at its end
    late["i_upper"][-1] = np.nan
    assert bottleneck(late).i_upper == 5.0


def test_bottleneck_whose_nats_tell_nothing_is_not_opened_yet():
    assert (
        bottleneck(curves(20.0, -6.5)).state == "not opened yet"
    )  # below blind guessing, as a young model is
    assert bottleneck(curves(0.4, -5.0)).state == "not opened yet"
    assert bottleneck(curves(0.4, -4.91)).state == "not opened yet"
    assert bottleneck(curves(0.4, -4.89)).state == "open"
    lucky = curves(20.0, -6.5)
    lucky["i_nce"][10] = -2.0
    assert bottleneck(lucky).state == "not opened yet"  # one minibatch is no opening


def test_bottleneck_that_lets_nothing_through_is_shut():
    assert bottleneck(curves(0.001, -5.02)).state == "shut"  # the pilot's collapse
    assert bottleneck(curves(0.09, -4.91)).state == "shut"
    fallen = curves(3.0, -5.02)
    fallen["i_nce"][10:20] = -2.0
    assert bottleneck(fallen).state == "shut"  # it was open before


def test_bottleneck_without_the_contrast_is_judged_by_i_upper_alone():
    assert bottleneck(curves(20.0, -6.5), contrast=False).state == "open"
    assert bottleneck(curves(0.001, -4.0), contrast=False).state == "shut"


def test_bottleneck_of_a_run_without_one_has_no_state():
    assert bottleneck({"score": np.ones(3)}) is None
    assert bottleneck(curves(np.nan, np.nan)) is None
