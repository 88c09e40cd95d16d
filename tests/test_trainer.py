"""The whole loop on worlds with a known answer."""

import copy
import hashlib
import json
import shutil
import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import ssedb
from ssedb import ppo
from ssedb.collect.environments import training_envs
from ssedb.engine.overlap import OverlappingEngine
from ssedb.errors import TrainingError
from ssedb.runs import checkpoint
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import Progress
from ssedb.trainer import Trainer
from tests.helpers import logged_numbers
from tests.toy import Grid, Sides, tiny_config


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
    for world in (Sides, Rich):
        trainer = Trainer(tiny_config(tmp_path), world(8))
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


def test_trainer_with_the_same_seed_alone_gives_the_same_metrics(tmp_path):
    rows = [
        train(
            tiny_config(
                tmp_path / name, seed=seed, steps=512, obs_norm_steps=200, noise="random-box"
            )
        )
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    ]
    metrics = [logged_numbers(r.out) for r in rows]
    assert metrics[0] == metrics[1]
    assert metrics[0] != metrics[2]


def test_trainer_leaves_the_callers_randomness_alone(tmp_path):
    torch.manual_seed(123)
    before = torch.get_rng_state()
    train(tiny_config(tmp_path / "run", steps=256, obs_norm_steps=100))
    assert torch.equal(torch.get_rng_state(), before)


def test_trainer_when_restored_continues_bit_for_bit(tmp_path):
    whole = Trainer(tiny_config(tmp_path), Grid(8, seed=1, episode=9))
    whole.iterate(), whole.iterate()
    state = copy.deepcopy(whole.state_dict())
    expected = [whole.iterate() for _ in range(2)]
    again = Trainer(tiny_config(tmp_path, seed=5), Grid(8, seed=77, episode=9))
    again.load_state_dict(state)
    assert (again.steps, again.updates) == (512, 2)
    actual = [again.iterate() for _ in range(2)]
    for row in expected + actual:
        row.pop("sps")
    assert actual == expected
    assert same(parameters(whole), parameters(again))


def make(overlap=True, **settings):
    """A trainer whose engine runs in the order of a GPU's: in turn, or bonus updates in slices."""
    world = Grid(8, episode=9)
    world.on_host = overlap
    config = tiny_config("unused", bonus_epochs=2, minibatch_envs=2, **settings)

    def engine(device, name, *, precision, seed, overlap, group):
        return OverlappingEngine(device, seed=seed, overlap=overlap)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssedb.trainer.make_engine", engine)
        return Trainer(config, world)


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

    names = ("bonus_step", "after_rollout_step", "reward_step")
    for owner, name in (*((trainer, name) for name in names), (trainer.engine, "join")):
        note(owner, name)
    trainer.iterate()
    last_update = len(order) - 1 - order[::-1].index("bonus_step")
    assert last_update < order.index("after_rollout_step")
    assert order.index("after_rollout_step") < order.index("join") < order.index("reward_step")


def test_metrics_outlive_a_rollout_that_was_interrupted():
    expected = make(False).iterate()
    trainer = make()
    trainer.iterate()

    def interrupt(steps):
        if steps == trainer.config.rollout_size * 2:
            raise KeyboardInterrupt

    trainer.progress = SimpleNamespace(step=interrupt, learn=lambda: None)
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
    trainer.after_rollout_step = lambda: time.sleep(0.5)
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


def test_train_writes_its_run_folder(tmp_path):
    result = train(
        tiny_config(tmp_path / "run", steps=512, obs_norm_steps=200, checkpoint_minutes=0)
    )
    assert (result.finished, result.steps) == (True, 512)
    for name in ("config.toml", "metrics.jsonl", "summary.json", "checkpoints", "tb"):
        assert (tmp_path / "run" / name).exists()
    rows = read_metrics(tmp_path / "run")
    assert [r["steps"] for r in rows] == [256, 512]
    wanted = {
        "sps",
        "score",
        "score_rollout",
        "score_best",
        "bonus_raw",
        "bonus",
        "i_upper",
        "i_pred",
        "i_nce",
    }
    wanted |= {
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "rank_state",
    }
    assert wanted <= set(rows[0])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"] is True
    assert summary["steps"] == 512


def test_resume_continues_the_counters_and_everything_that_learned(tmp_path):
    sizes = dict(num_envs=2, minibatch_envs=1, rollout_steps=16, obs_norm_steps=20)
    train(tiny_config(tmp_path / "run", env="breakout", steps=64, **sizes))
    notes = []

    class Notes(Progress):
        def note(self, text):
            notes.append(text)

    result = resume(tmp_path / "run", Notes(), steps=128)
    assert (result.steps, result.finished) == (128, True)
    assert notes == ["resumed at step 64"]
    rows = read_metrics(tmp_path / "run")
    assert [r["steps"] for r in rows] == [32, 64, 96, 128]
    assert [r["updates"] for r in rows] == [1, 2, 3, 4]
    again = resume(tmp_path / "run")  # nothing is left to do
    assert (again.steps, again.finished) == (128, True)


def test_resume_does_not_replay_the_first_episodes(tmp_path, monkeypatch):
    keys, make_envs = [], training_envs

    def spy(config, seed_key, device, group):
        keys.append(seed_key)
        return make_envs(config, seed_key, device, group)

    monkeypatch.setattr("ssedb.trainer.training_envs", spy)
    train(tiny_config(tmp_path / "run", steps=512, obs_norm_steps=64))
    resume(tmp_path / "run", steps=768)
    assert keys == [0, 2 + 2]


def test_resume_of_a_run_killed_in_its_first_update_begins_at_its_beginning(tmp_path):
    class Killed(BaseException):
        pass

    class Dies(Progress):
        def log(self, row):
            raise Killed

    class Notes(Progress):
        def __init__(self):
            self.notes = []

        def note(self, text):
            self.notes.append(text)

    def numbers(name):
        return logged_numbers(tmp_path / name)

    settings = dict(noise="random-box", steps=512, obs_norm_steps=100)
    for name in ("saved", "unsaved"):
        with pytest.raises(Killed):
            train(tiny_config(tmp_path / name, **settings), Dies())
    shutil.rmtree(tmp_path / "unsaved" / "checkpoints")  # killed before even that
    train(tiny_config(tmp_path / "whole", **settings))
    for name, said in (
        ("saved", "resumed at step 0"),
        ("unsaved", "no checkpoint yet; the run begins again"),
    ):
        resume(tmp_path / name, told := Notes())
        assert told.notes == [said]
        assert numbers(name) == numbers("whole")
        assert [row["updates"] for row in numbers(name)] == [1, 2]


def test_resume_from_a_checkpoint_that_does_not_fit_ends_in_one_line(tmp_path):
    train(tiny_config(tmp_path / "run", env="rooms-small", steps=256, obs_norm_steps=100))
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("policy_width = 32", "policy_width = 64"))
    newest = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    header, data = checkpoint.read_whole(newest)  # as of a version that told no settings
    old = {key: header[key] for key in ("steps", "env")}
    old["sha256"] = hashlib.sha256(data).hexdigest()
    newest.write_bytes(b"ssedb-checkpoint 1\n" + json.dumps(old).encode() + b"\n" + data)
    with pytest.raises(
        ssedb.ConfigError, match=r"does not fit its config\.toml: size mismatch"
    ) as error:
        resume(tmp_path / "run", steps=512)
    assert "\n" not in str(error.value)


def test_train_with_a_number_that_is_not_finite_stops_and_names_it(tmp_path, monkeypatch):
    train(tiny_config(tmp_path / "run", steps=256, obs_norm_steps=100))
    good = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    monkeypatch.setattr(ppo, "explained_variance", lambda *x: torch.tensor(float("nan")))
    with pytest.raises(TrainingError, match="explained_variance is nan after update 2"):
        resume(tmp_path / "run", steps=1024)
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == good


def test_train_with_a_weight_that_is_not_finite_names_it_and_never_saves_it(tmp_path, monkeypatch):
    train(tiny_config(tmp_path / "run", env="rooms-small", steps=256, obs_norm_steps=100))
    good = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    for module, name in (("bonus", "encoder.dense.bias"), ("policy", "value.bias")):
        iterate = Trainer.iterate

        def spoil(self, module=module, name=name, iterate=iterate):
            getattr(self, module).get_parameter(name).data.fill_(float("nan"))
            return iterate(self)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "iterate", spoil)
            with pytest.raises(TrainingError, match=r"is nan after update 2"):
                resume(tmp_path / "run", steps=1024)
    trainer = Trainer(tiny_config(tmp_path), Grid(8))
    trainer.policy.value.bias.data.fill_(float("inf"))
    with pytest.raises(TrainingError, match="weights of the policy are not finite"):
        trainer.check_weights()
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == good


def test_train_on_a_signal_finishes_the_update_and_saves(tmp_path):
    class Interrupt(Progress):
        def step(self, steps):
            if steps == 300 - 300 % 8:
                signal.raise_signal(signal.SIGTERM)

    result = train(tiny_config(tmp_path / "run", steps=100_000, obs_norm_steps=100), Interrupt())
    assert (result.finished, result.steps) == (False, 512)
    assert resume(tmp_path / "run", steps=600).steps == 768
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_train_on_a_second_signal_stops_at_once(tmp_path):
    class Impatient(Progress):
        def step(self, steps):
            if steps in (264, 272):
                signal.raise_signal(signal.SIGINT)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train(tiny_config(tmp_path / "run", steps=10**9, obs_norm_steps=100), Impatient())
    assert time.monotonic() - began < 60


def test_train_in_a_thread_needs_no_signals(tmp_path):
    results = []
    config = tiny_config(tmp_path / "run", steps=256, obs_norm_steps=100)
    thread = threading.Thread(target=lambda: results.append(ssedb.train(config)))
    thread.start()
    thread.join()
    assert results[0].finished
