"""The scale of intrinsic rewards."""

import pytest
import torch

from ssedb.normalize import RewardNorm

from .corridor import CLOCK, rollout, small


@pytest.mark.parametrize("scale", ["run", "recent", "none"])
def test_rewards_are_scaled_as_in_our_trainer(scale):
    reward = small(CLOCK, reward_scale=scale, gamma=0.9)
    norm = RewardNorm(3, 0.9, recent=scale == "recent")
    for seed in range(3):
        samples = rollout(seed=seed)
        raw = torch.as_tensor(samples["next_observations"][..., 0, 0, 0]).float()
        expected = raw if scale == "none" else norm(raw)
        assert torch.allclose(reward.compute(samples), expected)


def test_fidelity_implies_the_reward_scale():
    ours, papers = small(CLOCK), small(CLOCK, fidelity="paper")
    recent, run = small(CLOCK, reward_scale="recent"), small(CLOCK, reward_scale="run")
    for seed in range(2):
        rewards = [r.compute(rollout(4 + 4 * seed)) for r in (ours, recent, papers, run)]
    assert torch.equal(rewards[0], rewards[1])
    assert torch.equal(rewards[2], rewards[3])
    assert not torch.allclose(rewards[0], rewards[2])


def test_other_number_of_environments_continues_with_a_bonus_that_knows_none():
    reward = small("rnd", reward_scale="run")
    reward.compute(rollout())
    assert reward.compute(rollout(envs=2), sync=False).shape == (8, 2)
    assert reward.compute(rollout(envs=2)).shape == (8, 2)
