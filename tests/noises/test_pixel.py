"""Pixel noise: on every pixel as in the paper, or on black ones as in the release."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from ssedb.noises.pixel import Pixel
from tests.noises.draws import RAW, assert_bytes, flat, generator


def dark_frames(most: int) -> torch.Tensor:
    return torch.randint(0, most, (4, *RAW), generator=generator()).to(torch.uint8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
def test_zeros_variant_touches_black_alone_with_a_wrapped_normal(seed, strength):
    frames = dark_frames(4)
    noise = Pixel(strength, "zeros")
    noisy, mask = noise.disturb_frames(frames, {}, generator(seed), want_mask=True)
    assert torch.equal(mask, frames == 0)
    assert torch.equal(noisy[~mask], frames[~mask])
    # max(N, 0) cast to a byte, which wraps: k stands for k, k + 256, k + 512 and so on.
    turns = 256 * np.arange(1, 40)[:, None]
    positive = ndtr((np.arange(1, 256) + turns) / (80 * strength)) - ndtr(turns / (80 * strength))
    assert_bytes(noisy[mask], ndtr(np.arange(1, 256) / (80 * strength)) + positive.sum(0))


def test_zeros_variant_is_numpys_cast_of_the_generators_draws():
    frames = dark_frames(3)
    noisy, _ = Pixel(4.0, "zeros").disturb_frames(frames, {}, generator(1))
    draws = np.maximum(320 * torch.randn(frames.shape, generator=generator(1)).numpy(), 0)
    assert draws.max() > 1024
    expected = np.where(frames == 0, draws.astype(np.int64).astype(np.uint8), frames)
    np.testing.assert_array_equal(noisy.numpy(), expected)


def test_add_variant_touches_every_pixel_with_its_strength():
    noise = Pixel(0.25, "add")
    noisy, mask = noise.disturb_frames(flat(127, 20), {}, generator(), want_mask=True)
    assert mask.all()
    assert (noisy.float() - 127).std().item() == pytest.approx(20, abs=0.3)
