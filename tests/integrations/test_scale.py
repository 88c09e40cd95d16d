"""The scale of intrinsic rewards."""

import pytest
import torch

from ssedb.integrations.scale import WINDOW, RewardScale
from ssedb.normalize import RewardNorm

from .corridor import CLOCK, rollout, small


@pytest.mark.parametrize("scale", ["run", "recent", "none"])
def test_rewards_are_scaled_as_in_our_trainer(scale):
    reward = small(CLOCK, reward_scale=scale, gamma=0.9)
    norm = RewardNorm(3, 0.9, recent=scale == "recent")
    for seed in range(3):
        samples = rollout(WINDOW + seed, seed=seed)
        raw = torch.as_tensor(samples["next_observations"][..., 0, 0, 0]).float()
        expected = raw if scale == "none" else norm(raw)
        assert torch.allclose(reward.compute(samples), expected)


def test_fidelity_implies_the_reward_scale():
    ours, papers = small(CLOCK), small(CLOCK, fidelity="paper")
    recent, run = small(CLOCK, reward_scale="recent"), small(CLOCK, reward_scale="run")
    for seed in range(2):
        length = WINDOW + 4 * seed
        rewards = [r.compute(rollout(length)) for r in (ours, recent, papers, run)]
    assert torch.equal(rewards[0], rewards[1])
    assert torch.equal(rewards[2], rewards[3])
    assert not torch.allclose(rewards[0], rewards[2])


def scale_of(kind: str) -> RewardScale:
    return RewardScale(kind, 0.99, torch.device("cpu"))


def test_short_rollouts_are_scaled_by_as_many_steps_as_long_ones():
    raw = torch.rand(3 * WINDOW, 2, generator=torch.Generator().manual_seed(0))
    long, short = scale_of("recent"), scale_of("recent")
    for rewards in raw.split(WINDOW):
        last = long.add(rewards)
    scaled = torch.cat([short.add(rewards) for rewards in raw.split(8)])
    assert torch.equal(scaled[-1:], last[-1:])
    assert torch.equal(short.divide(raw), long.divide(raw))


def test_recent_scale_within_a_window_is_that_of_the_windows_before():
    scale, draws = RewardScale("recent", 0.0, torch.device("cpu")), torch.Generator().manual_seed(0)
    first, later = torch.rand(WINDOW, 4, generator=draws), torch.rand(9, 4, generator=draws)
    scale.add(first)
    assert torch.allclose(scale.add(100 * later), 100 * later / first.std(correction=0))


@pytest.mark.parametrize("kind", ["run", "recent"])
def test_rewards_without_a_scale_are_0(kind):
    scale = scale_of(kind)
    assert not scale.divide(torch.ones(2, 2)).any()
    assert not scale.add(torch.ones(1, 1)).any()  # a single sum does not vary
    alike = torch.ones(1, 8)
    alike[0, 3] += torch.finfo(torch.float32).eps  # rows of a batch may differ so
    assert not scale_of(kind).add(alike).any()
    scale = scale_of(kind)
    scale.add(torch.zeros(WINDOW, 2))  # as a bonus that begins with its first update
    assert not scale.divide(torch.ones(2, 2)).any()
    raw = torch.rand(WINDOW, 2, generator=torch.Generator().manual_seed(0))
    assert 0 < scale.add(raw).max() < 10


def test_scale_saved_within_a_window_continues_exactly():
    raw = torch.rand(3 * WINDOW, 2, generator=torch.Generator().manual_seed(0)).split(30)
    whole, part, restored = (scale_of("recent") for _ in range(3))
    for rewards in raw[:6]:  # a whole window and a part of the next
        whole.add(rewards), part.add(rewards)
    restored.load_state_dict(part.state_dict())
    for rewards in raw[6:]:
        assert torch.equal(restored.add(rewards), whole.add(rewards))


def test_other_number_of_environments_continues_with_a_bonus_that_knows_none():
    reward = small("rnd", reward_scale="run")
    reward.compute(rollout())
    assert reward.compute(rollout(envs=2), sync=False).shape == (8, 2)
    assert reward.compute(rollout(envs=2)).shape == (8, 2)
