"""States of rewards: restored exactly, and refused where they do not fit."""

import pickle

import pytest
import torch
from gymnasium import spaces

import ssedb

from .corridor import (
    CLOCK,
    SPACES,
    rollout,
    same_future,
    small,
    weights,
)


@pytest.mark.parametrize("save", ["state_dict", "pickle"])
@pytest.mark.parametrize("bonus", ["db", "e3b"])
def test_saved_reward_continues_as_the_original(bonus, save):
    one = small(bonus)
    one.compute(rollout())
    if save == "pickle":
        other = pickle.loads(pickle.dumps(one))
    else:
        other = small(bonus, seed=1)
        other.load_state_dict(one.state_dict())
    assert other.updates == 1
    assert same_future(one, other)


@pytest.mark.parametrize("save", ["state_dict", "checkpoint"])
@pytest.mark.parametrize("bonus", [b for b in ssedb.list_bonuses() if b != "none"])
def test_state_in_memory_restores_the_reward_as_often_as_it_is_loaded(bonus, save):
    reward = small(bonus, epochs=1)
    reward.compute(rollout())
    state = reward.checkpoint()["state"] if save == "checkpoint" else reward.state_dict()
    found = []
    for _ in range(3):
        found.append([reward.compute(rollout(seed=seed)) for seed in (1, 2)])
        found[-1].append(weights(reward))
        reward.load_state_dict(state)
    for later in found[1:]:
        assert all(map(torch.equal, later, found[0]))


def saved_by(bonus: str = "rnd", **settings) -> dict:
    return small(bonus, **settings).state_dict()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (saved_by("db"), "a state of bonus='db' does not fit this reward of bonus='rnd'"),
        (saved_by(feature_dim=8), "feature_dim=8 .* feature_dim=64"),
        (saved_by(preset="small"), "preset='small' .* preset='rooms'"),
        (saved_by(reward_scale="run"), "reward_scale='run' .* reward_scale='recent'"),
        (
            ssedb.IntrinsicReward("rnd", (spaces.Box(-1, 1, (4,)), SPACES[1])).state_dict(),
            r"observations=\(4,\) .* observations=\(1, 36, 36\)",
        ),
        (
            ssedb.IntrinsicReward("rnd", (SPACES[0], spaces.Discrete(5))).state_dict(),
            r"actions=Discrete\(5\) .* actions=Discrete\(3\)",
        ),
        ({**saved_by(), "bonus": {}}, "the state does not fit this reward"),
        ({"weight": torch.zeros(1)}, "no state of an IntrinsicReward"),
    ],
)
def test_load_state_dict_of_another_reward_is_answered_in_one_line(state, message):
    with pytest.raises(ssedb.ConfigError, match=message) as error:
        small().load_state_dict(state)
    assert "\n" not in str(error.value)


def test_load_state_dict_keeps_how_this_reward_is_trained():
    """Adam's first step on a slope of 2 is rate * 2 / (2 + epsilon)."""
    once = dict(epochs=1, batch_size=24, reward_scale="recent")
    reward = small(CLOCK, learning_rate=0.25, adam_eps=2.0, **once)
    reward.load_state_dict(small(CLOCK, fidelity="paper", learning_rate=0.5, **once).state_dict())
    reward.update(rollout())
    assert reward.bonus.weight.item() == pytest.approx(0.125)


def test_load_state_dict_drops_steps_watched_before():
    reward = small()
    saved = reward.state_dict()
    step = {name: value[0] for name, value in rollout(1).items()}
    reward.watch(**step)
    reward.load_state_dict(saved)
    reward.watch(**step)
    assert reward.compute().shape == (1, 3)
