"""Algorithm 1 against plain loops, the trainer's order of updates, and its state."""

import copy
import threading
import time

import numpy as np
import pytest
import torch

import ssedb
from ssedb.engine import make_engine
from ssedb.engine.overlap import OverlappingEngine
from ssedb.errors import TrainingError
from ssedb.trainer import Trainer
from tests.plain_run import ENVS, UNUSUAL, PlainRun, Snow
from tests.toy import Grid, Sides, tiny_config


@pytest.mark.parametrize("scale", ["run", "recent", "none"])
def test_iterations_match_plain_loops(tmp_path, scale):
    settings = dict(
        bonus="tests.plain_run:Known",
        bonus_options={},
        reward_scale=scale,
        mask_boundaries=scale == "run",
    )
    env = Snow()
    trainer = Trainer(tiny_config(tmp_path, **UNUSUAL, **settings), env)
    run = PlainRun(trainer, env)
    for _ in range(3):
        run.iterate()


def test_scores_of_episodes_cut_off_by_a_resume_are_forgotten(tmp_path):
    trainer = Trainer(tiny_config(tmp_path, **UNUSUAL), Snow(restorable=False))
    before = trainer.iterate()
    env = Snow(seed=1, restorable=False)
    again = Trainer(tiny_config(tmp_path, **UNUSUAL), env)
    again.load_state_dict(copy.deepcopy(trainer.state_dict()))
    row, ended, running = again.iterate(), [], torch.zeros(ENVS)
    for _, rewards, dones in env.answers:
        running += rewards
        ended += running[dones].tolist()
        running[dones] = 0
    assert row["score_rollout"] == pytest.approx(np.mean(ended), rel=1e-5)
    assert row["episodes"] == before["episodes"] + len(ended)


def parameters(trainer: Trainer) -> list[torch.Tensor]:
    return [
        p.detach().clone()
        for module in (trainer.policy, trainer.bonus)
        for p in module.parameters()
    ]


def same(first, second) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_ppo_with_the_extrinsic_reward_learns_from_it(tmp_path):
    settings = dict(
        extrinsic_coef=1.0,
        intrinsic_coef=0.0,
        learning_rate=1e-3,
        gamma=0.5,
        bonus="none",
        bonus_options={},
    )
    trainer = Trainer(tiny_config(tmp_path, **settings), Sides(8, episode=20))
    scores = [trainer.iterate()["score_rollout"] for _ in range(25)]
    assert scores[0] < 14  # 8 episodes of 20 steps at chance earn 10 on average, with a std of 0.8
    assert scores[-1] > 18  # twelve seeds gave 19.9 or 20


def test_ppo_without_the_extrinsic_reward_only_measures_the_score(tmp_path):
    class Rich(Sides):
        def act(self, actions):
            return super().act(actions) * 1000

    rows, weights = [], []
    for env in (Sides, Rich):
        trainer = Trainer(tiny_config(tmp_path), env(8))
        rows.append([trainer.iterate() for _ in range(2)][-1])
        weights.append(parameters(trainer))
    assert rows[1]["score"] == 1000 * rows[0]["score"]
    assert same(*weights)


def test_bonus_reaches_the_policy(tmp_path):
    """A trainer that adds the bonus after the returns are computed gives 0 and 1000 the same."""
    after = []
    for scale in (0.0, 1000.0):
        trainer = Trainer(tiny_config(tmp_path, reward_scale="none", intrinsic_coef=scale), Grid(8))
        before = parameters(trainer)
        trainer.iterate()
        after.append([p.detach().clone() for p in trainer.policy.parameters()])
        assert not same(before, parameters(trainer))
    assert not same(*after)


def test_bonus_when_normalised_matters_by_its_shape_alone(tmp_path):
    rows = []
    for scale in (1.0, 1000.0):
        trainer = Trainer(tiny_config(tmp_path), Grid(8))
        reward = trainer.bonus.reward
        trainer.bonus.reward = lambda *x, reward=reward, scale=scale: scale * reward(*x)
        rows.append(trainer.iterate())
    assert rows[1]["bonus_raw"] == pytest.approx(1000 * rows[0]["bonus_raw"], rel=1e-5)
    assert rows[1]["bonus"] == pytest.approx(rows[0]["bonus"], rel=1e-4)


def test_bonus_gets_each_transition_with_its_own_next_observation(tmp_path):
    """Grid's square moves by the action: next_obs must be obs moved, where no episode ended."""
    trainer, seen = Trainer(tiny_config(tmp_path), Grid(8, episode=7)), []
    loss = trainer.bonus.loss

    def spy(obs, actions, next_obs, mask):
        seen.append((obs, actions, next_obs, mask))
        return loss(obs, actions, next_obs, mask)

    trainer.bonus.loss = spy
    trainer.iterate()
    assert len(seen) == 2  # 8 envs in minibatches of 4, one epoch
    moves = torch.tensor([[0, 6], [6, 0], [0, -6], [-6, 0]])
    for obs, actions, next_obs, mask in seen:
        assert mask is not None
        moved = torch.stack(
            [
                o.roll(tuple(moves[a].tolist()), (0, 1))
                for o, a in zip(obs[:, -1], actions, strict=True)
            ]
        )
        right = (moved == next_obs[:, -1]).all(dim=(1, 2))
        assert right[mask].all()
        assert not right[~mask].all()
        assert 0 < (~mask).sum() < len(mask)
        assert torch.equal(next_obs[mask][:, :-1], obs[mask][:, 1:])


def test_released_fidelity_trains_three_epochs_and_keeps_boundary_pairs(tmp_path):
    config = tiny_config(tmp_path, fidelity="released")
    trainer, masks, epochs = Trainer(config, Grid(8)), [], []
    loss = trainer.bonus.loss
    trainer.bonus.loss = lambda o, a, n, mask: (masks.append(mask), loss(o, a, n, mask))[1]
    trainer.bonus.after_epoch = lambda: epochs.append(1)
    trainer.iterate()
    assert masks == [None] * 6
    assert len(epochs) == 3


def test_trainer_when_restored_continues_bit_for_bit(tmp_path):
    whole = Trainer(tiny_config(tmp_path), Grid(8, seed=1, episode=9))
    whole.iterate(), whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    expected = [whole.iterate() for _ in range(2)]
    again = Trainer(tiny_config(tmp_path, seed=5), Grid(8, seed=77, episode=9))
    again.load_state_dict(state)
    assert (again.steps, again.reached, again.updates) == (512, 512, 2)
    actual = [again.iterate() for _ in range(2)]
    for row in expected + actual:
        row.pop("sps")
    assert actual == expected
    assert same(parameters(whole), parameters(again))


def make(overlap=True, **settings):
    """A trainer whose engine runs in the order of a GPU's: in turn, or bonus updates in slices."""
    env = Grid(8, episode=9)
    env.on_host = overlap
    config = tiny_config("unused", bonus_epochs=2, minibatch_envs=2, **settings)

    def engine(device, name, *, precision, seed, overlap, group):
        return OverlappingEngine(device, seed=seed, overlap=overlap)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssedb.trainer.make_engine", engine)
        return Trainer(config, env)


def without_time(rows):
    return [{k: v for k, v in row.items() if k != "sps"} for row in rows if row is not None]


def test_trainer_updating_the_bonus_while_collecting_changes_no_number():
    def rows(trainer):
        return without_time([trainer.iterate() for _ in range(4)] + [trainer.finish()])

    def finished_rows(trainer):
        return without_time([trainer.iterate() or trainer.finish() for _ in range(4)])

    expected = rows(make(False))
    assert [row["updates"] for row in expected] == [1, 2, 3, 4]
    assert rows(make()) == expected
    assert finished_rows(make()) == expected


@pytest.mark.parametrize("bonus", ssedb.list_bonuses())
def test_overlapping_engine_matches_the_plain_one(bonus):
    options = {"counted": "frames"} if bonus == "count" else {}

    def outcome(overlap):
        sizes = dict(preset="rooms", rollout_steps=8)
        trainer = make(overlap, bonus=bonus, bonus_options=options, **sizes)
        rows = [trainer.iterate() for _ in range(3)] + [trainer.finish()]
        return without_time(rows), parameters(trainer)

    (rows, weights), (expected_rows, expected) = outcome(True), outcome(False)
    assert rows == expected_rows
    assert same(weights, expected)


def test_metrics_are_made_on_a_worker_thread_and_its_errors_are_raised():
    trainer, threads = make(), []

    def diagnose(*args, **kwargs):
        threads.append(threading.current_thread())
        return {"rank": torch.tensor(3.0 if len(threads) < 2 else torch.nan)}

    trainer.diagnose_step = diagnose
    assert trainer.iterate() is None
    assert trainer.iterate()["rank"] == 3
    assert threading.main_thread() not in threads
    with pytest.raises(TrainingError, match="rank is nan after update 2"):
        trainer.iterate()


def test_intrinsic_rewards_wait_for_the_bonus_update(monkeypatch):
    trainer, order = make(), []
    trainer.iterate()

    def note(owner, name):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            order.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    note(trainer, "bonus_step"), note(trainer, "reward_step")
    note(trainer.bonus, "after_rollout"), note(trainer.engine, "wait_for_background")
    trainer.iterate()
    last_update = len(order) - 1 - order[::-1].index("bonus_step")
    assert last_update < order.index("after_rollout")
    assert (
        order.index("after_rollout")
        < order.index("wait_for_background")
        < order.index("reward_step")
    )


def test_metrics_outlive_a_rollout_that_was_interrupted():
    expected = make(False).iterate()
    trainer = make()
    trainer.iterate()

    def interrupt(steps):
        if steps == trainer.config.rollout_size * 2:
            raise KeyboardInterrupt

    trainer.on_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        trainer.iterate()
    assert without_time([trainer.finish()]) == without_time([expected])
    assert trainer.finish() is None


def test_checkpoint_holds_the_bonus_update_under_way():
    waiting, overlapping = make(False), make()
    for trainer in (waiting, overlapping):
        torch.manual_seed(0)
        trainer.iterate(), trainer.iterate()
    assert not same(parameters(overlapping), parameters(waiting))
    overlapping.state_dict()
    assert same(parameters(overlapping), parameters(waiting))


@pytest.mark.parametrize("overlap", [False, True])
def test_speed_counts_all_the_time_of_an_iteration(overlap):
    trainer = make(overlap)
    trainer.bonus.after_rollout = lambda: time.sleep(0.5)
    row = trainer.iterate() or trainer.finish()
    assert 0 < row["sps"] < trainer.config.rollout_size / 0.5


def test_trainer_that_was_used_refuses_a_checkpoint():
    trainer = make()
    trainer.iterate()
    with pytest.raises(RuntimeError, match="has made 1 updates; load into a new one"):
        trainer.load_state_dict(trainer.state_dict())


@pytest.mark.parametrize("updates", [1, 2])
def test_trainer_with_overlap_when_restored_continues_bit_for_bit(updates):
    whole = make()
    for _ in range(updates):
        whole.iterate()
    whole.finish()
    state = copy.deepcopy(whole.state_dict())
    expected = without_time([whole.iterate() for _ in range(3)] + [whole.finish()])
    again = make()
    again.load_state_dict(state)
    assert without_time([again.iterate() for _ in range(3)] + [again.finish()]) == expected


def test_trainer_when_deterministic_asks_for_eager_steps(tmp_path, monkeypatch):
    asked = []

    def noted(device, kind, **how):
        asked.append(kind)
        return make_engine(device, kind, **how)

    monkeypatch.setattr("ssedb.trainer.make_engine", noted)
    for name, deterministic in (("usual", False), ("exact", True)):
        Trainer(tiny_config(tmp_path / name, deterministic=deterministic)).close()
    assert asked == ["auto", "eager"]
