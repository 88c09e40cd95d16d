"""A run from its first step to its last: its folder, resuming, signals, NaN."""

import hashlib
import json
import shutil
import signal
import threading
import time

import pytest
import torch

import ssedb
from ssedb import ppo
from ssedb.collect.environments import training_envs
from ssedb.errors import TrainingError
from ssedb.runs import checkpoint
from ssedb.runs.loop import resume, train
from ssedb.runs.metrics import read_metrics
from ssedb.runs.progress import Progress
from ssedb.trainer import Trainer
from tests.helpers import Notes, logged_numbers
from tests.toy import Grid, tiny_config


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
    result = resume(tmp_path / "run", told := Notes(), steps=128)
    assert (result.steps, result.finished) == (128, True)
    assert told.notes == ["resumed at step 64"]
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

    def numbers(name):
        return logged_numbers(tmp_path / name)

    settings = dict(noise="random-box", steps=512, obs_norm_steps=100)
    for name in ("saved", "unsaved"):
        with pytest.raises(Killed):
            train(tiny_config(tmp_path / name, **settings), Dies())
    shutil.rmtree(tmp_path / "unsaved" / "checkpoints")  # killed before even that
    (tmp_path / "unsaved" / "metrics.jsonl").write_text("")
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
        trainer.require_finite_weights()
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
