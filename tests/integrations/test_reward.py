"""`ssedb.IntrinsicReward`: samples in, intrinsic rewards out."""

import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces

import ssedb
from ssedb.errors import Note
from tests.bonuses.recorder import RECORDER, Recorder

from .corridor import CLOCK, SPACES, Clock, random_samples, rollout, same_future, small, weights


@pytest.mark.parametrize(
    "bonus", ["db", "disagreement", "icm", "rnd", "re3", "e3b", "count", CLOCK]
)
def test_compute_rewards_every_step_and_sync_changes_only_the_state(bonus):
    reward = small(bonus)
    peeked = reward.compute(rollout(), sync=False)
    before = weights(reward)
    assert torch.equal(reward.compute(rollout(), sync=False), peeked)
    assert torch.equal(weights(reward), before)
    assert torch.equal(reward.compute(rollout()), peeked)
    assert peeked.shape == (8, 3)
    assert peeked.dtype == torch.float32
    assert (peeked >= 0).all()
    assert peeked.mean() > 0
    assert reward.updates == 1


@pytest.mark.parametrize("watched", [False, True])
def test_samples_of_a_policy_with_a_graph_leave_its_graph_and_gradients_alone(watched):
    policy = torch.nn.Linear(4, 2)
    box = spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,))
    reward = ssedb.IntrinsicReward("icm", box, preset="rooms", device="cpu")
    obs, no = torch.rand(9, 3, 4), torch.zeros(8, 3, dtype=torch.bool)
    actions = policy(obs[:-1]).tanh()
    columns = (obs[:-1], actions, no, no, no, obs[1:])
    if watched:
        for step in zip(*columns, strict=True):
            reward.watch(*step)
        reward.update()
    else:
        reward.update(dict(zip(rollout(), columns, strict=True)))
    assert policy.weight.grad is None
    actions.sum().backward()
    assert policy.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.compute(5), r"samples of int: give a dict of arrays \[T, N\]"),
        (lambda r: r.compute([1, 2]), "samples of list: give a dict"),
        (lambda r: r.compute(rollout() | {"rewards": None}), "rewards=None: give an array"),
        (lambda r: r.watch(None, *[np.zeros(3)] * 5), "observations=None: give an array"),
        (lambda r: r.begin_episodes("all"), "which='all': give an array or a tensor"),
        (lambda r: r.load_state_dict(None), "no state of an IntrinsicReward"),
        (
            lambda r: r.compute(rollout() | {"actions": np.full((8, 3), 0.7)}),
            r"action 0\.7.*: Disc",
        ),
    ],
)
def test_arguments_that_are_no_numbers_are_answered_in_one_line(call, message):
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        call(small())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["db_ensemble", "random_features"])
def test_bonus_may_be_written_with_underscores(name):
    dashed = name.replace("_", "-")
    assert small(name).identity() == small(dashed).identity()


def test_printed_reward_names_bonus_spaces_and_device():
    reward = ssedb.IntrinsicReward(
        "rnd", (spaces.Box(-1, 1, (4,)), spaces.Discrete(2)), preset="rooms", device="cpu"
    )
    assert repr(reward) == "IntrinsicReward('rnd', observations (4,), actions Discrete(2), cpu)"


class Drawn(Clock):
    """A clock whose rewards are drawn."""

    deterministic = False

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs) + torch.rand(len(obs))


DRAWN = f"{__name__}:Drawn"


@pytest.mark.parametrize("updates", [0, 1])
@pytest.mark.parametrize("bonus", ["rnd", DRAWN])
def test_compute_without_sync_leaves_the_state_as_it_was(bonus, updates):
    reward, alike = small(bonus), small(bonus)
    for one in (reward, alike):
        for _ in range(updates):
            one.update(rollout())
    peeked = reward.compute(rollout(seed=1), sync=False)
    assert torch.equal(weights(reward), weights(alike))
    assert torch.equal(reward.compute(rollout(seed=1)), peeked)
    alike.update(rollout(seed=1))
    assert same_future(reward, alike)


def test_compute_without_sync_and_update_equal_compute_with_sync():
    one, other = small("db"), small("db")
    one.compute(rollout())
    other.compute(rollout(), sync=False)
    other.update(rollout())
    assert same_future(one, other)


def test_watch_step_by_step_equals_samples():
    one, other = small("e3b"), small("e3b")
    samples = rollout()
    for t in range(8):
        one.watch(**{name: value[t] for name, value in samples.items()})
    assert torch.equal(one.compute(), other.compute(samples))
    assert same_future(one, other)
    with pytest.raises(ssedb.ConfigError, match="nothing was watched"):
        one.compute()


def test_watch_copies_what_the_environments_write_to_again():
    reward = small(CLOCK, reward_scale="none")
    samples = rollout()
    step = {name: value[0].copy() for name, value in samples.items()}
    reward.watch(**step)
    for value in step.values():
        value[:] = 0
    assert reward.compute()[0].tolist() == [1, 2, 3]


def test_reward_leaves_torchs_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    small("db").compute(rollout())
    assert torch.equal(torch.rand(1), expected)


def test_reward_that_is_made_leaves_the_generators_of_gpus_alone(monkeypatch):
    def seed(number):
        raise AssertionError(f"seeded with {number}")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", seed)
    small("db")


def test_reward_follows_its_seed():
    first, second, third = small("db"), small("db"), small("db", seed=1)
    assert same_future(first, second)
    assert not torch.equal(weights(small("db")), weights(third))


def test_reward_draws_by_its_seed_whatever_its_weights():
    one, other = (small("db", seed=seed, epochs=1, batch_size=24) for seed in (0, 1))
    draws = other.state_dict()["engine"]
    other.load_state_dict({**one.state_dict(), "engine": draws})
    for reward in (one, other):
        reward.update(rollout())
    assert one.metrics["bonus_loss"] != pytest.approx(other.metrics["bonus_loss"], rel=1e-4)
    orders = []
    for seed in (0, 1):
        Clock.trained.clear()
        small(CLOCK, seed=seed).update(rollout())
        orders.append(torch.cat(Clock.trained).tolist())
    assert orders[0] != orders[1]


def test_fidelity_and_preset_make_the_networks():
    assert len(weights(small("db"))) < len(weights(small("db", preset="small")))
    assert len(weights(small("db"))) != len(weights(small("db", fidelity="released")))


def test_update_trains_the_model():
    reward = small("rnd", epochs=8, learning_rate=1e-3, reward_scale="none")
    first = reward.compute(rollout())
    losses = []
    for _ in range(4):
        last = reward.compute(rollout())
        losses.append(reward.metrics["bonus_loss"])
    assert last.mean() < 0.5 * first.mean()
    assert losses[-1] < losses[0]


def test_compute_calls_the_bonus_as_our_trainer_does():
    reward = small(RECORDER, epochs=2, batch_size=24)
    Recorder.calls.clear()
    reward.compute(rollout())
    kinds = [call.split()[0] for call in Recorder.calls]
    epoch = ["loss", "after_step", "after_epoch"]
    assert kinds == ["reward", "observe", *epoch * 2, "after_rollout"]


def test_metrics_tell_the_raw_and_the_scaled_bonus():
    reward = small(CLOCK, reward_scale="run")
    scaled = reward.compute(rollout())
    assert reward.metrics["bonus"] == pytest.approx(scaled.mean().item())
    times = rollout()["next_observations"][..., 0, 0, 0]
    assert reward.metrics["bonus_raw"] == pytest.approx(times.mean())


def test_epochs_and_batch_size_say_how_often_the_model_is_trained():
    small(CLOCK, epochs=3, batch_size=7).compute(rollout())
    assert [len(times) for times in Clock.trained] == 3 * [6, 6, 6, 6]


def test_memory_that_stays_empty_is_noted_once():
    planes = spaces.Box(0, 255, (36, 36, 2), np.uint8), SPACES[1]
    samples = random_samples(*planes)  # no channel is the other's past
    reward = ssedb.IntrinsicReward("db-ensemble", planes, preset="rooms", epochs=1, device="cpu")
    with pytest.warns(Note, match="bonus='db-ensemble': its memory stores nothing.*memory=0"):
        reward.compute(samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reward.compute(samples)
        ssedb.IntrinsicReward("db-ensemble", planes, preset="rooms", memory=0).compute(samples)
        small("db-ensemble").compute(rollout())  # a stack of one


def test_watch_of_a_single_environment_is_answered_in_one_line():
    step = {name: value[0, 0] for name, value in rollout(1).items()}
    with pytest.raises(ssedb.ConfigError, match=r"terminateds of shape \[\]: watch takes"):
        small().watch(**step)


def test_settings_are_taken_as_our_trainer_takes_them():
    reward = small(learning_rate=1, epochs=1e0, gamma=1, share=np.float32(0.5))
    kinds = {name: type(reward.settings[name]) for name in ("learning_rate", "epochs", "share")}
    assert kinds == {"learning_rate": float, "epochs": int, "share": float}
    assert reward.compute(rollout()).isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reward_scale": "best"}, "reward_scale='best'"),
        ({"bonus": "nope"}, "bonus='nope'"),
        ({"bonus": "count", "counted": "states"}, "counts true states"),
        ({"envs": 3}, "envs=3"),
        ({"envs": ("a", "b")}, "give environments, or their"),
        ({"obs_key": "view"}, "obs_key='view': observations are Box.*; leave it out"),
        ({"envs": (spaces.Box(-np.inf, 1, (40, 40, 3)), SPACES[1])}, "images or vectors"),
        ({"envs": (SPACES[0], spaces.Text(3))}, "actions are Text"),
        ({"share": 0.0}, "share=0.0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"learning_rate": "1e-3"}, "learning_rate='1e-3': must be a finite number"),
        ({"adam_eps": -1}, "adam_eps=-1: must be above 0"),
        ({"epochs": True}, "epochs=True: must be a whole number"),
        ({"fit_obs": "no"}, "fit_obs='no': must be true or false"),
        ({"rgb": "no"}, "rgb='no': must be true or false"),
        ({"gamma": None}, "gamma=None: must be a finite number"),
        ({"gamma": 2.0}, "gamma=2.0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**70}, "seed=1180591620717411303424: must be below"),
        ({"device": "tpu"}, "device='?tpu"),
        ({"precision": "fp8"}, "precision='?fp8"),
        ({"fidelity": "theirs"}, "fidelity='theirs'"),
        ({"rgb": True}, "1 channels"),
        ({"no_such_option": 1}, "no setting 'no_such_option'"),
    ],
)
def test_settings_that_do_not_fit_are_answered_in_one_line(settings, message):
    settings = {"bonus": "rnd", "envs": SPACES, "preset": "rooms", **settings}
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        ssedb.IntrinsicReward(**settings)
    assert "\n" not in str(error.value)
