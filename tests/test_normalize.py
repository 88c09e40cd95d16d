"""The running scales against plain loops."""

import re

import numpy as np
import pytest
import torch

import ssedb
from ssedb.normalize import (
    SUMS_AT_ONCE,
    FeatureNorm,
    FrameNorm,
    ObsNorm,
    RewardNorm,
    RunningMoments,
    VectorNorm,
    discounted_sums,
    to_blocks,
)


def filtered_by_loop(rewards: np.ndarray, start: np.ndarray, gamma: float) -> np.ndarray:
    sums, out = start.copy(), []
    for row in rewards:
        sums = gamma * sums + row
        out.append(sums.copy())
    return np.array(out)


@pytest.mark.parametrize("steps", [128, SUMS_AT_ONCE, 2 * SUMS_AT_ONCE + 3])
def test_discounted_sums_match_a_loop(steps):
    rng = np.random.default_rng(0)
    rewards, start = rng.normal(size=(steps, 3)), rng.normal(size=3)
    actual = discounted_sums(torch.from_numpy(rewards), torch.from_numpy(start), 0.99)
    expected = filtered_by_loop(rewards, start, 0.99)
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


def test_reward_norm_carries_sums_and_statistics_over_rollouts():
    rng = np.random.default_rng(1)
    norm, sums, seen = RewardNorm(4, 0.9), np.zeros(4), []
    for scale in (1.0, 5.0, 0.1):
        rewards = (rng.exponential(size=(6, 4)) * scale).astype(np.float32)
        filtered = filtered_by_loop(rewards.astype(np.float64), sums, 0.9)
        sums = filtered[-1]
        seen.append(filtered)
        expected = rewards / np.concatenate(seen).std()  # this rollout counts before it is divided
        np.testing.assert_allclose(norm(torch.from_numpy(rewards)), expected, rtol=1e-5)


def test_recent_scale_is_a_moving_average_of_each_rollouts_variance():
    rng = np.random.default_rng(0)
    norm, sums, variance = RewardNorm(4, 0.9, recent=True), np.zeros(4), 0.0
    for number in range(1, 71):  # beyond 50 rollouts the newest weighs 0.02
        rewards = rng.normal(5 - number / 20, 1 + number / 50, (6, 4))
        found = norm(torch.tensor(rewards, dtype=torch.float32))
        seen = []
        for row in rewards:
            sums = 0.9 * sums + row
            seen += list(sums)
        variance += max(1 / number, 0.02) * (np.var(seen) - variance)
        np.testing.assert_allclose(found, rewards / np.sqrt(variance), rtol=1e-5)


def test_recent_scale_does_not_count_the_drift_of_the_level():
    """A signal of std 1 on a level that falls from 100 to 0, as a bonus that fades."""
    draws = torch.Generator().manual_seed(0)
    whole, recent = RewardNorm(16, 0.9), RewardNorm(16, 0.9, recent=True)
    for level in torch.linspace(100, 0, 200):
        rewards = level + torch.randn(32, 16, generator=draws)
        spread = whole(rewards).std(), recent(rewards).std()
    assert spread[1] > 20 * spread[0]


@pytest.mark.parametrize("recent", [False, True])
def test_reward_norm_when_restored_continues(recent):
    first, second = (RewardNorm(4, 0.9, recent=recent) for _ in range(2))
    rewards = torch.rand(5, 4)
    first(rewards)
    second.load_state_dict({k: v.clone() for k, v in first.state_dict().items()})
    torch.testing.assert_close(first(rewards), second(rewards), rtol=0, atol=0)


def test_reward_norm_of_a_constant_zero_stays_zero():
    assert RewardNorm(2, 0.99)(torch.zeros(3, 2)).abs().max() == 0


def test_reward_norm_scales_tiny_rewards_as_any_other():
    rewards = torch.rand(50, 4, generator=torch.Generator().manual_seed(0))
    tiny, plain = (RewardNorm(4, 0.9)(scale * rewards) for scale in (1e-6, 1.0))
    torch.testing.assert_close(tiny, plain, rtol=1e-3, atol=0)


def test_moments_of_batches_are_the_moments_of_all():
    rng = np.random.default_rng(2)
    batches = [rng.normal(loc=1e3, size=(n, 2, 3)) for n in (1, 7, 30)]
    moments = RunningMoments((2, 3), torch.float64)
    for batch in batches:
        moments.add(torch.from_numpy(batch))
    everything = np.concatenate(batches)
    np.testing.assert_allclose(moments.mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, everything.var(0), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_obs_norm_scales_by_a_mean_picture_and_one_std(dtype):
    obs = torch.randint(0, 256, (3, 4, 8, 12), generator=torch.Generator().manual_seed(0)).to(dtype)
    before, norm = obs.clone(), ObsNorm((4, 8, 12))
    np.testing.assert_allclose(norm(obs), obs.numpy() / 255.0, rtol=1e-6)
    mean, std = torch.rand(4, 8, 12) * 255, torch.tensor(1.7)
    norm.set(mean, std)
    scaled, expected = norm(obs), (obs.double().numpy() - mean.numpy()) / std.item()
    blocks = norm.in_blocks(obs, norm.mean, norm.std, 9.0)  # as on a GPU, and clipped
    np.testing.assert_allclose(scaled, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(norm.for_convs(obs), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pictures(blocks), expected.clip(-9, 9), rtol=1e-4, atol=1e-4)
    assert scaled.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(obs, before)


def pictures(blocks) -> np.ndarray:
    """[B, 16 C, h, w] back to [B, C, 4 h, 4 w], pixel by pixel."""
    batch, channels, height, width = blocks.shape
    whole = np.zeros((batch, channels // 16, 4 * height, 4 * width))
    for c, y, x in np.ndindex(channels // 16, 4 * height, 4 * width):
        whole[:, c, y, x] = blocks[:, 16 * c + 4 * (y % 4) + x % 4, y // 4, x // 4]
    return whole


@pytest.mark.parametrize("shape", [(8, 12), (9, 14), (36, 37)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_blocks_hold_every_pixel_but_those_left_at_the_edges(shape, dtype):
    whole = torch.randint(0, 256, (2, 3, *shape), generator=torch.Generator().manual_seed(0)).to(
        dtype
    )
    # slices too, whatever their strides, and no images at all
    for images in (whole, whole[:, -1:], whole[..., 1:], whole[:0]):
        height, width = images.shape[2] // 4 * 4, images.shape[3] // 4 * 4
        np.testing.assert_array_equal(pictures(to_blocks(images)), images[..., :height, :width])


def test_frame_norm_scales_by_all_observed_frames_and_clips():
    rng = np.random.default_rng(3)
    frames, before = FrameNorm((1, 8, 4)), ObsNorm((4, 8, 4))
    before.set(torch.full((4, 8, 4), 10.0) * torch.arange(1, 5)[:, None, None], torch.tensor(50.0))
    obs = rng.integers(0, 256, size=(20, 4, 8, 4)).astype(np.uint8)
    newest = obs[:, -1:].astype(np.float64)
    # Before the first update the scale of the observations (of their newest frame) stands in.
    scaled = frames(torch.from_numpy(obs), before)
    np.testing.assert_allclose(scaled, np.clip((newest - 40) / 50, -5, 5), rtol=1e-5, atol=1e-6)
    seen = []
    for n in (1, 7, 30):
        batch = rng.integers(60, 120, size=(n, 4, 8, 4)).astype(np.uint8)
        batch[..., 0] = 90  # a column that never changes: its std counts as 1
        frames.observe(torch.from_numpy(batch))
        seen.append(batch[:, -1:].astype(np.float64))
        everything = np.concatenate(seen)
        expected = np.clip((newest - everything.mean(0)) / np.maximum(everything.std(0), 1), -5, 5)
        np.testing.assert_allclose(
            frames(torch.from_numpy(obs), before), expected, rtol=1e-3, atol=1e-3
        )
    assert np.abs(expected).max() == 5
    assert frames.count == 38


@pytest.mark.parametrize("shape", [(2, 84, 84, 4), (4, 84, 84), (2, 1, 84, 84)])
@pytest.mark.parametrize("name", sorted({*ssedb.list_bonuses()} - {"none"}))
def test_obs_norm_of_another_shape_is_refused(name, shape):
    bonus = ssedb.make_bonus(name, (4, 84, 84), 4)
    obs = torch.zeros(shape, dtype=torch.uint8)
    message = (
        f"observations of shape {list(shape)}: "
        "this was made for [batch, 4, 84, 84]; give it such, or"
    )
    with pytest.raises(ssedb.ConfigError, match=re.escape(message)):
        bonus.reward(obs, torch.zeros(2, dtype=torch.int64), obs)


def test_features_are_scaled_by_moving_moments():
    rows = torch.tensor([[1.0, -2.0, 0.5, 0.01], [3.0, 2.0, 0.5, -0.01]])
    norm = FeatureNorm(4)
    torch.testing.assert_close(norm(rows), rows)  # mean 0 and std 1 until a batch was observed
    for _ in range(3000):
        norm.observe(rows)
    expected = torch.tensor([[-1.0, -1.0, 0.0, 1.0], [1.0, 1.0, 0.0, -1.0]])
    torch.testing.assert_close(norm(rows), expected, atol=1e-3, rtol=0)


def test_frame_norm_of_vectors_is_by_the_moments_of_each_dimension():
    before, norm = VectorNorm((3,)), FrameNorm((3,))
    before.set(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([2.0, 2.0, 0.0]))
    obs = torch.tensor([[3.0, 1.0, 2.0], [100.0, 1.0, 1.0]])
    assert norm(obs, before).tolist() == [[1.0, 0.0, 1.0], [5.0, 0.0, 0.0]]
    norm.observe(torch.tensor([[0.0, 10.0, 4.0], [20.0, 14.0, 4.0]]))
    expected = torch.tensor([[-0.7, -5.0, -2.0], [5.0, -5.0, -3.0]])
    torch.testing.assert_close(norm(obs, before), expected)
