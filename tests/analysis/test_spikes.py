"""Spikes planted into curves are found, noise alone is not, and a real run gets its pictures."""

import errno
import json
import os

import numpy as np
import pytest

import ssedb
from ssedb import cli
from ssedb.analysis.spikes import GAP, find_spikes, spike_heights
from tests.toy import tiny_config

FREE = "free some space there"


def noisy_curve(seed, length=1000):
    return np.random.default_rng(seed).normal(0, 1, length)


def clear(curve, **settings):
    return [spike.step for spike in find_spikes(curve, **settings) if spike.clear]


def test_find_spikes_under_noise_and_drift_finds_the_planted_ones():
    planted = [40, 170, 300, 420, 610, 750, 900]
    others = 0
    for seed in range(20):
        curve = noisy_curve(seed) + 20 * np.sin(np.arange(1000) / 400)
        curve[planted] += 15
        found = clear(curve)
        assert set(planted) <= set(found)
        assert clear(7 * curve - 100) == found  # the scale of the bonus does not matter
        others += len(found) - len(planted)
    assert (
        others <= 6
    )  # 0.02 in a curve, as measured; more than 6 in 20 is a chance of one in ten million


def test_find_spikes_in_noise_alone_finds_none_but_by_chance():
    found = [len(clear(noisy_curve(seed, 2000))) for seed in range(100)]
    # One curve in a hundred by design, two because the spread is an estimate.
    # More than 12 is one chance in a million.
    assert sum(found) <= 12
    for seed in range(3):  # a wilder noise is measured by its own spread
        assert len(clear(100 * noisy_curve(seed))) <= 1


def test_find_spikes_beside_strong_ones_keeps_the_weaker():
    curve = noisy_curve(3)
    curve[100::100] += 1000
    curve[150] += (
        10  # with mean and std in place of median and MAD this is less than a tenth of a deviation
    )
    assert 150 in clear(curve)


def test_find_spikes_beyond_the_limit_keeps_the_strongest_in_time_order():
    curve = noisy_curve(4, 2000) * 0.01
    heights = {100 * k: 10 + (7 * k) % 19 for k in range(1, 20)}
    for t, height in heights.items():
        curve[t] += height
    strongest = sorted(sorted(heights, key=heights.__getitem__)[-16:])
    assert [spike.step for spike in find_spikes(curve)] == strongest
    assert [spike.step for spike in find_spikes(curve, most=3)] == sorted(
        sorted(heights, key=heights.__getitem__)[-3:]
    )
    crowd = noisy_curve(5, 300) * 0.01
    crowd[100:130] += np.linspace(5, 8, 30)
    crowd[131] += 20
    steps = [spike.step for spike in find_spikes(crowd)]
    assert 131 in steps
    assert min(np.diff(steps), default=GAP) >= GAP


def test_find_spikes_at_edges_plateaus_and_flat_curves_is_defined():
    curve = noisy_curve(6, 200) * 0.01
    curve[[0, 199]] += 5
    assert {0, 199} <= set(clear(curve))
    flat = np.zeros(100)
    assert find_spikes(flat) == []
    flat[50:53] = 1.0
    assert [spike.step for spike in find_spikes(flat)] == [51]
    assert find_spikes(np.zeros(0)) == find_spikes(np.ones(2)) == []


def test_spike_heights_are_in_robust_standard_deviations():
    heights = spike_heights(3 * noisy_curve(7, 20_000))
    assert heights.std() == pytest.approx(1, abs=0.03)
    outliers = noisy_curve(7, 20_000)
    outliers[::20] += 50
    assert np.median(np.abs(spike_heights(outliers))) == pytest.approx(
        np.median(np.abs(heights)), rel=0.12
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("spikes") / "run"
    ssedb.train(
        tiny_config(out, env="rooms-small", noise="random-box", steps=256, obs_norm_steps=64)
    )
    return out


def test_spikes_of_a_real_run_are_written(run, capsys):
    av = pytest.importorskip("av")
    assert cli.main(["analyze", "spikes", str(run), "--device", "cpu"]) == 0
    folder = run / "spikes"
    assert str(folder) in capsys.readouterr().out.replace("\n", "")
    found = json.loads((folder / "spikes.json").read_text())
    assert found["length"] == len(found["curve"]) == 100
    assert [spike.step for spike in find_spikes(np.array(found["curve"]))] == [
        spike["step"] for spike in found["spikes"]
    ]
    assert len(found["spikes"]) >= 1
    clips = sorted(folder.glob("clip-*.mp4"))
    assert len(clips) == len(found["spikes"])
    with av.open(str(clips[0])) as file:
        assert len(list(file.decode(video=0))) == min(16, 100 - found["spikes"][0]["step"])
    with av.open(str(folder / "episode.mp4")) as file:
        film = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(film) == 100
    assert film[0].shape == (540, 840, 3)  # the noisy and the clean picture, the curve below
    assert (film[0] != film[99]).any(2)[420:].mean() > 0.01  # the curve runs
    for name in ("curve.png", "frames.png"):
        assert (folder / name).stat().st_size > 5_000


def test_spikes_on_a_full_disk_keep_the_older_ones(run, monkeypatch, capsys):
    pytest.importorskip("av")
    command = ["analyze", "spikes", str(run), "--device", "cpu", "--steps", "40"]
    assert cli.main(command) == 0
    (run / "spikes" / "clip-99.mp4").touch()
    before = {path: path.read_bytes() for path in (run / "spikes").iterdir()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert cli.main(command) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"ssedb: {run / 'spikes' / 'curve.png'}: No space left on device; {FREE}"
    assert {path: path.read_bytes() for path in (run / "spikes").iterdir()} == before
    assert cli.main(command) == 0
    assert not (run / "spikes" / "clip-99.mp4").exists()
