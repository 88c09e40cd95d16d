"""The probe on bonuses that are made to have a known answer, and on a real run."""

import json

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d

import ssedb
from ssedb.analysis.probe import Probe, probe_bonus, probe_run
from ssedb.bonuses.base import Bonus
from ssedb.envs.rooms.world import World
from ssedb.noises import make_noise
from ssedb.transitions import draw_transitions, rewards_of
from tests.bonuses.recorder import RECORDER, Recorder
from tests.toy import tiny_config

ADAM = dict(learning_rate=0.01, adam_eps=1e-8)


class Made(Bonus):
    """Rewards 1/sqrt(N + 1) of the newest frame's state, plus a dial times the frame's brightness.

    The noise changes the brightness alone.
    """

    def __init__(self, world, pair_visits, dial):
        super().__init__((4, 84, 84), world.num_actions)
        self.world, self.pair_visits, self.dial = world, pair_visits, dial
        # The true states, which only a made bonus may know.
        self.clean = torch.zeros(0, dtype=torch.int64)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def reward(self, obs, actions, next_obs):
        ids = self.clean[: len(obs)]
        reward = (self.pair_visits[ids, actions] + 1.0).rsqrt()
        return (self.scale * reward + self.dial * obs[:, -1].float().mean((1, 2))).detach()

    def loss(self, obs, actions, next_obs, mask=None):
        return self.scale.square(), {}

    def features(self, obs, actions):
        ids = self.clean[: len(obs)]
        return torch.nn.functional.one_hot(
            ids // self.world.scenes_per_cell, len(self.world.cells)
        ).float()


@pytest.fixture(scope="module")
def small():
    world = World("small")
    pair_visits = torch.randint(
        0, 400, (world.num_states, 5), generator=torch.Generator().manual_seed(0)
    )
    data = draw_transitions(world, None, 1000, 6, make_noise("random-box"), seed=1)
    return world, pair_visits, data


@pytest.mark.parametrize("dial", [0.0, 1.0])
def test_probe_of_a_count_bonus_tells_noise_from_none(small, dial):
    world, pair_visits, data = small
    bonus = Made(world, pair_visits, dial)
    bonus.clean = data.states
    result = probe_bonus(bonus, world, data, pair_visits, "random-box", **ADAM)
    if dial == 0:
        assert result.bonus_noise_share < 1e-6
        assert result.count_correlation == pytest.approx(1)
    else:
        assert (
            result.bonus_noise_share > 0.8
        )  # boxes change the brightness far more than counts vary
        assert abs(result.count_correlation) < 0.5
    assert result.feature_noise_share == 0
    assert result.room_accuracy > 0.9  # one number per cell says it all
    assert result.noise_explained < 0.1
    before = [float(rewards_of(bonus, data, draw)[:128].mean()) for draw in (None, *range(6))]
    assert result.fall_clean[0] == pytest.approx(before[0])
    for step, clean, noisy in zip(
        result.fall_steps, result.fall_clean, result.fall_noisy, strict=True
    ):  # training changes both alike, and every step has the next draw
        assert noisy - clean == pytest.approx(before[1 + step % 6] - before[0], abs=1e-4)
    assert result.fall_clean[-1] < result.fall_clean[0]
    assert bonus.scale.item() == 1  # a copy was trained


def test_noise_explained_is_of_the_newest_frame_that_the_bonus_saw(small, monkeypatch):
    class Difference(Made):
        def features(self, obs, actions):
            clean = self.world.frames(self.world.state_of(self.clean[: len(obs)]))
            return adaptive_avg_pool2d(obs[:, -1:].float() - clean[:, None], 4).flatten(1)

    monkeypatch.setattr("ssedb.analysis.probe.FALL_AT", (0,))
    world, pair_visits, data = small
    bonus = Difference(world, pair_visits, 0.0)
    bonus.clean = data.states
    result = probe_bonus(bonus, world, data, pair_visits, "random-box", **ADAM)
    assert result.noise_explained > 0.999


def test_fall_is_along_the_updates_that_a_trainer_makes(small, monkeypatch):
    monkeypatch.setattr("ssedb.analysis.probe.FALL_AT", (0, 1))
    bonus = ssedb.make_bonus(RECORDER, (4, 84, 84), 5)
    Recorder.calls.clear()
    probe_bonus(bonus, None, small[2], None, "random-box", **ADAM)
    kinds = [call.split()[0] for call in Recorder.calls]
    update = ["observe", "loss", "after_step", "after_epoch", "after_rollout"]
    assert kinds[-12:] == ["reward", *update] * 2


def test_twins_share_the_true_state_and_differ_in_the_noise(small):
    _, _, data = small
    first, second = data.pair(0), data.pair(1)
    clean = data.pair(None)
    same = (first[0] == clean[0]).float().mean()
    assert 0.85 < same < 0.95  # boxes cover about a tenth
    assert not torch.equal(first[0], second[0])
    assert torch.equal(
        first[0][:, 1:], first[2][:, :-1]
    )  # consecutive stacks share frames, noise and all


def test_walks_are_real_transitions_of_the_world(small):
    world, _, data = small
    state = world.state_of(data.states)
    assert torch.equal(world.frames(state), data.clean[-2])
    assert torch.equal(world.frames(world.move(state, data.actions)[0]), data.clean[-1])


def test_probe_of_a_real_run_writes_its_measures(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("ssedb.analysis.probe.FALL_BATCH", 16)
    ssedb.train(
        tiny_config(
            tmp_path / "run", env="rooms-tiny", noise="random-box", steps=512, obs_norm_steps=64
        )
    )
    result, picture = probe_run(tmp_path / "run", transitions=256, draws=3)
    assert picture.stat().st_size > 10_000
    saved = json.loads((tmp_path / "run" / "probe.json").read_text())
    assert saved["bonus_noise_share"] == result.bonus_noise_share
    assert 0 <= result.bonus_noise_share <= 1
    assert -1 <= result.count_correlation <= 1
    assert len(result.fall_clean) == len(result.fall_steps) == 7
    fresh, _ = probe_run(tmp_path / "run", transitions=256, draws=3, fresh=True)
    assert fresh.bonus_mean != result.bonus_mean
    (tmp_path / "run" / "probe.json").unlink()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ssedb.analysis.plots.plot_probe", full)
    with pytest.raises(OSError, match="No space left"):
        probe_run(tmp_path / "run", transitions=256, draws=3)
    assert not (tmp_path / "run" / "probe.json").exists()  # a sweep would take it for probed


@pytest.mark.parametrize(("eps", "least", "most"), [(1e-8, 0.0, 0.9), (1e6, 0.999, 1.001)])
def test_probe_trains_with_the_optimizer_of_the_run(tmp_path, monkeypatch, eps, least, most):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("ssedb.analysis.probe.FALL_BATCH", 16)
    settings = dict(bonus="icm", bonus_options={}, noise="random-box", adam_eps=eps)
    sizes = dict(preset="rooms", env="rooms-tiny", num_envs=4, rollout_steps=8, steps=32)
    ssedb.train(tiny_config(tmp_path / "run", obs_norm_steps=32, **sizes, **settings))
    result, _ = probe_run(tmp_path / "run", transitions=128, draws=2)
    assert least < result.fall_clean[-1] / result.fall_clean[0] < most


@pytest.mark.parametrize("fidelity", ["paper", "released"])
@pytest.mark.usefixtures("few_games")
def test_probe_of_a_game_measures_noise_alone(tmp_path, monkeypatch, fidelity):
    monkeypatch.setattr("ssedb.analysis.probe.FALL_BATCH", 16)
    monkeypatch.setattr("ssedb.analysis.probe.FALL_AT", (0, 1))
    run = tmp_path / "game"
    settings = dict(num_envs=1, minibatch_envs=1, steps=32, obs_norm_steps=16, fidelity=fidelity)
    if fidelity == "released":
        settings["noise_variant"] = "fill"
    ssedb.train(tiny_config(run, env="breakout", noise="random-box", **settings))
    result, picture = probe_run(run, transitions=128, draws=3)
    assert picture.stat().st_size > 10_000
    assert 0 < result.bonus_noise_share <= 1
    assert result.room_accuracy is result.count_correlation is None
    with pytest.raises(
        ssedb.ConfigError, match="noise=sticky: the probe draws noise over pictures"
    ):
        probe_run(run, noise="sticky")  # which has no such variant


@pytest.mark.parametrize("features", [True, False])
def test_probe_figure_names_the_run_and_what_it_draws(tmp_path, monkeypatch, features):
    pytest.importorskip("matplotlib")
    from ssedb.analysis import plots

    drawn = []
    save = plots.Figure.savefig
    monkeypatch.setattr(
        plots.Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))
    )
    measured = dict.fromkeys(("feature_noise_share", "room_accuracy", "place_explained"))
    if features:
        measured = dict.fromkeys(measured, 0.5)
    fall = dict(fall_steps=(0, 1), fall_clean=(1.0, 0.5), fall_noisy=(1.0, 0.6))
    rest = dict(noise="random-box", bonus_mean=1.0, bonus_noise_share=0.0, count_correlation=0.9)
    probe = Probe(**rest, **measured, noise_explained=None, **fall)
    plots.plot_probe(probe, torch.ones(3), None, None, None, tmp_path / "probe.png", "run-7: count")
    (figure,) = drawn
    assert figure.get_suptitle() == "run-7: count"
    left, right = figure.axes
    assert left.get_xlabel() == "train steps on the same transitions"
    assert ("blue" in right.get_title()) == features
    assert ("no features" in right.get_title()) == (not features)
    assert right.texts[0].get_text() == "0.00"
    figure.draw_without_rendering()
    names = [label.get_window_extent().x0 for label in right.get_yticklabels()]
    assert min(names) > left.get_window_extent().x1 + 10


def test_probe_of_rooms_with_sticky_actions_measures_counts_and_no_noise(tmp_path):
    run = tmp_path / "run"
    ssedb.train(tiny_config(run, noise="sticky", steps=256, obs_norm_steps=32))
    result, _ = probe_run(run, transitions=128, draws=2)
    assert result.bonus_noise_share == 0
    assert result.count_correlation is not None
