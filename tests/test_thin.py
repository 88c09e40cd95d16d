"""Curves with fewer points: spikes stay, holes go."""

import numpy as np
import pytest

from ssedb.thin import compact, evenly_spaced, thin_curve


def test_evenly_spaced_keeps_both_ends():
    assert evenly_spaced(0, 3).tolist() == []
    assert evenly_spaced(5, 1000).tolist() == [0, 1, 2, 3, 4]
    steps = evenly_spaced(4500, 1000)
    assert (len(steps), steps[0], steps[-1]) == (1000, 0, 4499)
    assert set(np.diff(steps)) <= {4, 5}


def test_thin_keeps_every_spike_and_only_real_points():
    rng = np.random.default_rng(0)
    x, y = np.arange(10_000.0), rng.normal(size=10_000)
    y[[1234, 7777]] = 50, -60
    thin_x, thin_y = thin_curve(x, y, 200)
    assert len(thin_x) <= 200
    assert (thin_x[0], thin_x[-1]) == (0, 9999)
    assert (np.diff(thin_x) > 0).all()
    assert {1234.0, 7777.0} <= set(thin_x)
    np.testing.assert_array_equal(thin_y, y[thin_x.astype(int)])
    for start in range(0, 10_000, 500):  # the envelope stays: the extremes of every part are near
        part = slice(start, start + 500)
        inside = (thin_x >= start) & (thin_x < start + 500)
        assert thin_y[inside].max() == pytest.approx(y[part].max(), abs=1e-12)
        assert thin_y[inside].min() == pytest.approx(y[part].min(), abs=1e-12)


def test_thin_of_short_curves_keeps_all_and_leaves_out_holes():
    x, y = np.arange(6.0), np.array([1, np.nan, 2, np.inf, 3, 4])
    thin_x, thin_y = thin_curve(x, y, 100)
    assert (thin_x.tolist(), thin_y.tolist()) == ([0, 2, 4, 5], [1, 2, 3, 4])
    assert compact(np.array([1.0, 0.123456789, 1e20, -3])) == [1, 0.12346, 1e20, -3]
