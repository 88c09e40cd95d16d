"""The separation on known data, the picture of clusters that must stay apart, and a real run."""

import json
import math

import numpy as np
import pytest

import ssedb
from ssedb import cli
from ssedb.analysis.tsne import embed, step_ratio
from tests.toy import tiny_config


def by_hand(z):
    """Every pair, one at a time."""
    n = len(z)
    pairs = [math.dist(z[i], z[j]) for i in range(n) for j in range(n) if i != j]
    steps = [math.dist(z[i], z[i + 1]) for i in range(n - 1)]
    return (sum(steps) / len(steps)) / (sum(pairs) / len(pairs))


@pytest.mark.parametrize("shape", [(3, 1), (40, 2), (25, 128)])
def test_step_ratio_matches_every_pair_by_hand(shape):
    z = np.random.default_rng(0).normal(3, 2, shape)
    assert step_ratio(z) == pytest.approx(by_hand(z.tolist()), rel=1e-9)
    assert step_ratio(100 * z - 7) == pytest.approx(step_ratio(z), rel=1e-9)


def test_step_ratio_tells_a_line_from_noise_and_from_a_leap():
    n = 300
    line = np.arange(n)[:, None] * np.ones((1, 5))
    assert step_ratio(line) == pytest.approx(
        3 / (n + 1), rel=1e-9
    )  # the mean of |i - j| over pairs is (n + 1) / 3
    noise = np.random.default_rng(1).normal(size=(3000, 64))
    assert step_ratio(noise) == pytest.approx(1, abs=0.01)
    leaping = np.array([[0.0], [1.0]] * 50)  # there and back: each step 1, pairs 0 or 1
    assert step_ratio(leaping) == pytest.approx(1 / (2 * 50 * 50 / (100 * 99)), rel=1e-9)


def test_step_ratio_where_nothing_varies_is_missing():
    assert step_ratio(np.ones((50, 8))) is None
    assert step_ratio(np.full((50, 8), 1e6 / 3, np.float32)) is None
    assert step_ratio(np.zeros((2, 8))) is None


def test_embedding_keeps_clusters_apart_and_repeats():
    rng = np.random.default_rng(2)
    centres = rng.normal(0, 20, (4, 60))
    sizes = [15, 25, 35, 45]
    owner = np.repeat(np.arange(4), sizes)
    z = centres[owner] + rng.normal(0, 1, (sum(sizes), 60))
    points = embed(z)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (owner[distances.argmin(1)] == owner).all()
    np.testing.assert_array_equal(points, embed(z))
    assert embed(np.ones((50, 8))).shape == (50, 2)
    assert embed(rng.normal(size=(3, 8))).shape == (3, 2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tsne")
    settings = dict(env="rooms-small", noise="random-box", steps=256, obs_norm_steps=64)
    ssedb.train(tiny_config(folder / "db", **settings))
    ssedb.train(
        tiny_config(
            folder / "rnd", bonus="rnd", **{**settings, "bonus_options": {"feature_dim": 16}}
        )
    )
    ssedb.train(tiny_config(folder / "game", steps=256, obs_norm_steps=64))
    return folder


def test_tsne_of_a_run_beside_another_draws_both(runs, capsys):
    from ssedb.analysis.episode import record_episode, trace_bonus

    args = ["analyze", "tsne", str(runs / "db"), "--compare", str(runs / "rnd"), "--device", "cpu"]
    assert cli.main(args) == 0
    out = capsys.readouterr().out
    found = json.loads((runs / "db" / "tsne" / "tsne.json").read_text())
    assert [m["title"] for m in found["maps"]] == ["db", "rnd", "raw pixels"]
    episode = record_episode(runs / "db", device="cpu")
    for chart, run in zip(found["maps"], ("db", "rnd"), strict=False):
        assert chart["step_ratio"] == pytest.approx(
            step_ratio(trace_bonus(episode, runs / run, "cpu").features), rel=1e-6
        )
        assert len(chart["points"]) == len(chart["steps"]) == found["length"] == 100
        assert f"{chart['step_ratio']:.3f}" in out
    pixels = episode.seen.float()
    stacks = np.stack(
        [pixels[[max(t - 3 + i, 0) for i in range(4)]].flatten().numpy() for t in range(100)]
    )
    pairs = np.mean(
        [np.linalg.norm(np.delete(stacks, t, 0) - stacks[t], axis=1).mean() for t in range(100)]
    )
    steps = np.linalg.norm(np.diff(stacks, axis=0), axis=1).mean()
    assert found["maps"][2]["step_ratio"] == pytest.approx(steps / pairs, rel=1e-4)
    for name in ("tsne.png", "tsne.html"):
        assert (runs / "db" / "tsne" / name).stat().st_size > 20_000


def test_tsne_with_a_mistake_ends_in_one_line(runs, capsys):
    assert cli.main(["analyze", "tsne", str(runs / "db"), "--compare", str(runs / "game")]) == 2
    assert "compare runs on the same env" in capsys.readouterr().err
    assert cli.main(["analyze", "tsne", str(runs / "nothing")]) == 2
    assert cli.main(["analyze", "spikes", str(runs / "db"), "--steps", "0"]) == 2
    assert "steps=0: must be 1 or more" in capsys.readouterr().err
