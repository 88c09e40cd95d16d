"""Rewards at every step."""

import numpy as np
import pytest
from gymnasium import spaces

import ssedb
from ssedb.integrations import rlexplore
from ssedb.integrations.scale import WINDOW
from ssedb.integrations.stepwise import Stepwise

SPACES = spaces.Box(-2, 2, (3,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize("kind", ["run", "recent"])
@pytest.mark.parametrize("update_every", [1, 2, 8, WINDOW + 1])
def test_first_rewards_are_0_and_later_ones_small_however_often_the_bonus_is_updated(
    update_every, kind
):
    reward = ssedb.IntrinsicReward("rnd", SPACES, preset="rooms", epochs=1, reward_scale=kind)
    step = Stepwise(reward, update_every)
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((2 * WINDOW + 1, 1, 3), np.float32)
    no = np.zeros(1, bool)
    rewards = [step(obs[t], np.zeros(1, int), no, obs[t + 1])[0] for t in range(2 * WINDOW)]
    first = max(update_every, WINDOW)
    assert not any(rewards[:first])
    assert all(rewards[first:])
    assert max(rewards) < 10
    assert reward.updates == (2 * WINDOW - first) // update_every + 1


def test_single_transition_of_a_bonus_that_compares_them_is_answered_in_one_line():
    re3 = ssedb.IntrinsicReward("re3", SPACES, preset="rooms", device="cpu")
    step, no = Stepwise(re3, 1), np.zeros(1, bool)
    obs = np.zeros((1, 3), np.float32)
    samples = {
        "observations": obs[None],
        "actions": np.zeros((1, 1), int),
        "terminateds": no[None],
        "truncateds": no[None],
        "next_observations": obs[None],
    }
    message = "bonus='re3': it compares the states of a batch"
    with pytest.raises(ssedb.ConfigError, match=message):
        step(obs, np.zeros(1, int), no, obs)
    with pytest.raises(ssedb.ConfigError, match=message):
        re3.compute(samples)
    with pytest.raises(ssedb.ConfigError, match=message):
        rlexplore.RE3(SPACES, latent_dim=8).compute(samples)
    two = {name: value.repeat(2, 1) for name, value in samples.items()}
    assert rlexplore.RE3(SPACES, latent_dim=8).compute(two).shape == (1, 2)
