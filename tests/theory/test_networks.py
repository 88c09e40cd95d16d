"""The measures of network against theory, on cases with a known answer, and the model in small."""

import math

import numpy as np
import pytest
import torch

from ssedb import objectives
from ssedb.envs.rooms.world import World
from ssedb.noises import make_noise
from ssedb.theory import gain, networks, trust
from ssedb.theory.networks import OneHotRiver, Posteriors, Snapshot
from ssedb.trainer import Trainer
from ssedb.transitions import draw_transitions
from tests.bonuses.plain import array


def normals(count, dims, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dims, generator=generator).double(), torch.rand(
        count, dims, generator=generator
    ).double() + 0.2


def test_log_densities_match_torch_distributions():
    mean, std = normals(4, 3)
    z, _ = normals(6, 3, seed=1)
    expected = torch.distributions.Normal(mean, std).log_prob(z[:, None]).sum(-1)
    assert torch.allclose(networks.log_densities(z, mean, std), expected)


def test_divergence_from_a_mixture_of_one_is_the_divergence_of_gaussians(monkeypatch):
    monkeypatch.setattr(networks, "SAMPLES", 4000)
    mean, std = normals(5, 2)
    seen = Posteriors(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1))
    found = networks.divergence_from_mixture(mean, std, seen, torch.Generator().manual_seed(0))
    assert found.tolist() == pytest.approx(
        objectives.kl_to_standard_normal(mean, std).tolist(), abs=0.1
    )


def test_divergence_of_posteriors_apart_is_the_log_of_their_share():
    """Why the true marginal makes a count bonus: -log(N / all)."""
    counts = torch.tensor([1, 10, 100])
    mean, std = 100 * torch.eye(3), torch.ones(3, 3)
    found = networks.divergence_from_mixture(
        mean, std, Posteriors(mean, std, counts), torch.Generator().manual_seed(0)
    )
    assert found.tolist() == pytest.approx([math.log(111 / n) for n in (1, 10, 100)])


def test_information_gains_by_two_ways_agree():
    rng = np.random.default_rng(0)
    data, eta = rng.normal(size=(9, 4)), rng.normal(size=(5, 4))
    precision = gain.gram(data, 1.0)
    ours = gain.information_gain(gain.squared_width(precision, eta), 7)
    theirs = objectives.information_gain(
        torch.tensor(eta), torch.linalg.inv(torch.tensor(precision)), 7
    )
    assert ours == pytest.approx(theirs.numpy())


def test_river_shows_its_state_and_follows_its_kernel():
    river = OneHotRiver(64, seed=0)
    states, actions, after = river.walk(300)
    pictures = river.pictures(torch.arange(16))
    assert pictures.shape == (16, 1, 36, 36)
    assert (pictures.flatten(1).sum(1, dtype=torch.int64) == 81 * 255).all()
    assert (pictures.sum(0, dtype=torch.int64) == 255).all()
    assert float(actions.double().mean()) == pytest.approx(0.65, abs=0.01)
    middle_right, left = (states == 3) & (actions == 1), (states > 0) & (actions == 0)
    assert (after[left] == states[left] - 1).all()
    moves = torch.bincount(after[middle_right] - 2, minlength=3) / middle_right.sum()
    assert moves.tolist() == pytest.approx([0.05, 0.6, 0.35], abs=0.04)


def test_count_exponent_of_known_counts_is_exact():
    counts = torch.tensor([0, 1, 5, 50, 500])
    assert trust.count_exponent(3 * (counts + 1.0).rsqrt(), counts) == pytest.approx(-0.5)
    assert trust.count_exponent(torch.full((5,), 7.0), counts) == pytest.approx(0)


def snapshot(practical):
    counts = torch.tensor([0, 0, 1, 3, 10, 100])
    exact = torch.from_numpy(np.sqrt(gain.information_gain(1 / (counts.numpy() + 1.0), 4)))
    return Snapshot(1, counts, exact, practical(exact), exact * 2, -exact + 9, 5.0, 4.0)


def test_summary_of_a_perfect_and_of_a_contrary_bonus_is_calibrated():
    found = trust.summary(snapshot(lambda exact: 3 * exact))
    assert found["practical"] == pytest.approx(1)
    assert found["linear_visited"] == pytest.approx(-1)
    spoiled = trust.summary(snapshot(lambda exact: exact.where(exact < exact.max(), 0)))
    assert spoiled["practical"] < spoiled["practical_visited"] == pytest.approx(1)
    rows = trust.calibration(snapshot(lambda exact: 3 * exact))
    assert [row["of"] for row in rows] == [2, 1, 1, 1, 1]
    assert [row["practical"][0] for row in rows] == pytest.approx(
        [row["exact_over_mean"] for row in rows]
    )
    rows = [trust.follow([snapshot(lambda exact: 3 * exact)], lambda share: None, 1)]
    claims = {claim.claim: claim.verdict for claim in trust.judge("toy", {"r": rows})}
    assert list(claims.values()) == ["holds", "holds", "fails", "holds", "holds"]


def test_real_model_on_the_river_is_measured():
    shots = [list(networks.train_on_river(1, init, 0, dict(fidelity="ours"))) for init in (0, 0, 1)]
    first, again, other = (run[-1] for run in shots)
    assert first.steps == int(first.counts.sum()) == 2048
    assert torch.equal(first.counts, other.counts)  # the same data for every initialisation
    assert torch.equal(first.practical, again.practical)
    assert not torch.equal(first.practical, other.practical)
    assert first.exact.tolist() == pytest.approx(
        np.sqrt(8 * np.log1p(1 / (first.counts.numpy() + 1))).tolist()
    )
    assert 0 < first.inside <= math.log(32) + 0.1
    assert first.inside < first.upper
    assert trust.summary(first)["marginal"] > 0.8


def made(monkeypatch, name):
    """Keep what the module makes by a name of its own."""
    make, kept = getattr(networks, name), []

    def keep(*args, **kwargs):
        kept.append(make(*args, **kwargs))
        return kept[-1]

    monkeypatch.setattr(networks, name, keep)
    return kept


def gains(mean, rows, states):
    """The root of Theorem 1's gain of each mean, after the rows [M, D]."""
    precision = np.eye(mean.shape[1]) + rows.T @ rows
    widths = (mean * np.linalg.solve(precision, mean.T).T).sum(1)
    return pytest.approx(np.sqrt(states / 2 * np.log(1 + widths)), rel=1e-4)


def test_second_snapshot_of_the_river_is_that_of_a_recount(monkeypatch):
    monkeypatch.setattr(networks, "bonus_step", lambda *args: None)  # training would take seconds
    bonuses = made(monkeypatch, "make_bonus")
    *_, shot = networks.train_on_river(2, 0, 0, dict(fidelity="ours"))
    river = OneHotRiver(16, seed=0)
    states, actions, _ = river.walk(2 * 128)
    visited = (2 * states + actions).numpy()
    pairs = torch.arange(32)
    with torch.no_grad():
        mean, std = map(array, bonuses[0].represent(river.pictures(pairs // 2), pairs % 2))
    assert shot.counts.tolist() == [int((visited == pair).sum()) for pair in range(32)]
    assert shot.linear.numpy() == gains(mean, mean[visited], 16)
    nats = 0.5 * (mean**2 + std**2 - 1 - 2 * np.log(std)).sum(1)
    assert shot.upper == pytest.approx(nats[visited].mean(), rel=1e-4)


def test_snapshots_of_rooms_are_those_of_a_recount(monkeypatch):
    monkeypatch.setattr(Trainer, "update_policy", lambda *args: None)
    monkeypatch.setattr(Trainer, "update_bonus", lambda *args: iter(()))
    trainers, rows = made(monkeypatch, "Trainer"), []
    probes = draw_transitions(World("small"), None, 512, 1, make_noise("none"), seed=1)
    for shot in networks.train_on_rooms(2, 0, dict(fidelity="ours", obs_norm_steps=200)):
        rollout, bonus = trainers[0].rollout, trainers[0].bonus
        t, n = rollout.indices(torch.arange(rollout.num_envs))
        t, n = t[t >= 4], n[t >= 4]
        rows.append(array(bonus.features(rollout.stacks(t, n), rollout.actions[t, n])))
        mean = array(bonus.features(*probes.pair(None)[:2]))
        counts = trainers[0].env.env.visit_counts
        assert torch.equal(shot.counts, counts.pair_visits[probes.states, probes.actions])
        states = int(counts.reachable.sum())
        assert shot.linear.numpy() == gains(mean, np.concatenate(rows), states)


def test_gain_over_the_representation_counts_every_visit_once():
    """Orthogonal means of length 1 are one-hot features: Theorem 1's gain is then Theorem 2's."""

    class Fake:
        def represent(self, obs, actions):
            return torch.eye(3), torch.ones(3, 3)

        def reward(self, obs, actions, next_obs):
            return torch.ones(3)

    counts = torch.tensor([0, 4, 40])
    seen = Posteriors(torch.eye(3)[1:], torch.ones(2, 3), counts[1:])
    empty = torch.zeros(3, dtype=torch.int64)
    precision = torch.diag(counts.double())
    shot = networks.take_snapshot(Fake(), empty, empty, counts, 5, 44, seen, precision)
    assert torch.allclose(shot.linear, shot.exact)
    assert shot.exact.tolist() == pytest.approx(
        [math.sqrt(2.5 * math.log(1 + 1 / (n + 1))) for n in (0, 4, 40)]
    )
    assert shot.upper == pytest.approx(0.5)


def test_whole_system_on_rooms_is_measured():
    shot = list(networks.train_on_rooms(1, 0, dict(fidelity="ours", obs_norm_steps=200)))[-1]
    assert shot.steps == 1024
    assert 0 < int((shot.counts > 0).sum()) < 512
    assert all(math.isfinite(value) for value in trust.summary(shot).values())
    assert shot.practical.square().mean() > shot.inside  # most of the KL is not information
