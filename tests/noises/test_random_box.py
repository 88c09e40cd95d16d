"""Random boxes: whole cells of the grid, evenly chosen, in both variants."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import chi2

from ssedb.noises.random_box import RandomBox
from tests.noises.draws import RAW, SMALL, assert_bytes, flat, generator


def boxes(frames, strength=1.0, seed=0, variant="fill"):
    """Return the noisy frames and the mask."""
    noise = RandomBox(strength, variant)
    return noise.disturb_frames(frames, {}, generator(seed), want_mask=True)


def cells_touched(mask: torch.Tensor) -> np.ndarray:
    """Return the cells of the grid that are touched, [N, 10, 8]: each wholly or not at all."""
    mask = mask[..., 0] if mask.ndim == 4 else mask
    height, width = mask.shape[1] * 2 // 21, mask.shape[2] // 8
    covered = mask[:, : 10 * height, : 8 * width].numpy()
    covered = covered.reshape(len(mask), 10, height, 8, width)
    touched, whole = covered.any(axis=(2, 4)), covered.all(axis=(2, 4))
    assert (touched == whole).all()
    outside = mask.clone()
    outside[:, : 10 * height, : 8 * width] = False
    assert not outside.any()
    return touched


@pytest.mark.parametrize("shape", [RAW, SMALL])
@pytest.mark.parametrize("variant", ["fill", "wrap"])
def test_boxes_on_any_frame_are_3_to_12_whole_cells(shape, variant):
    frames = flat(100, 120, shape)
    noisy, mask = boxes(frames, variant=variant)
    counts = cells_touched(mask).sum(axis=(1, 2))
    assert 3 <= counts.min() <= counts.max() <= 12
    assert torch.equal(noisy[~mask], frames[~mask])
    assert (noisy != frames)[mask].float().mean() > 0.95


@pytest.mark.parametrize("seed", range(5))
def test_boxes_on_many_frames_have_uniform_number_and_cells(seed):
    """Use tiny frames, of 10x8 cells of 2x1 pixels. Chance alone fails once in a million."""
    _, mask = boxes(flat(0, 8000, (21, 8)), seed=seed)
    cells = cells_touched(mask)
    numbers = np.bincount(cells.sum(axis=(1, 2)), minlength=13)[3:]
    assert ((numbers - 800) ** 2 / 800).sum() < chi2.isf(1e-6, 9)
    by_cell, expected = cells.sum(axis=0), 8000 * 7.5 / 80
    # Cells of one frame exclude each other, which makes the sum a little smaller than a chi-square.
    assert ((by_cell - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 79)
    together = (cells[:, 0, 0] & cells[:, 0, 1]).sum()  # neighbours are no likelier than others
    share = np.mean([n * (n - 1) for n in range(3, 13)]) / (80 * 79)
    assert abs(together - 8000 * share) < 5 * np.sqrt(8000 * share)


def test_boxes_on_raw_frames_sit_where_the_release_puts_them():
    _, mask = boxes(flat(0, 200, RAW), variant="wrap")
    assert not mask[:, 200:].any()  # the lowest ten rows are never touched
    assert mask[:, :200].any(dim=(0, 3)).all()  # every other pixel is, sooner or later
    share = cells_touched(mask).mean(axis=0)
    assert share.min() > 0  # all 80 cells take part
    assert abs(share.mean() - 7.5 / 80) < 5 * np.sqrt(99 / 12 / 200) / 80  # five standard errors


def test_wrap_on_black_has_the_released_statistics():
    noisy, mask = boxes(flat(0, 200, RAW), variant="wrap")
    values = noisy[mask].float()
    assert values.mean().item() == pytest.approx(126.5, abs=0.5)
    assert values.std().item() == pytest.approx(81.6, abs=0.5)
    draws = np.random.default_rng(0).normal(0, 76.5, 10**6)
    bytes_ = draws.astype(np.int64).astype(np.uint8)  # C's cast wraps
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(values, quantiles), np.quantile(bytes_, quantiles), atol=3
    )


@pytest.mark.parametrize("seed", range(3))
def test_wrap_on_bright_frames_adds_to_what_is_there(seed):
    noisy, mask = boxes(flat(250, 50, RAW), 0.05, seed, "wrap")
    values, std = noisy[mask], 0.05 * 76.5
    # Around 250, beyond 255 from the bottom; eight standard deviations.
    assert ((values < 24) | (values > 220)).all()
    wrapped = ndtr(-6 / std)
    assert abs((values < 24).double().mean().item() - wrapped) < 5 * np.sqrt(wrapped / len(values))


@pytest.mark.parametrize("seed", range(4))
def test_fill_at_full_strength_hides_what_is_below_at_every_pixel(seed):
    """1.2 million pixels: rounding once let 3 in a million show through."""
    dark, mask = boxes(flat(0, 2000), seed=seed)
    for below, strength in ((255, 1.0), (77, 2.0)):  # more than all of a box cannot be filled
        other, _ = boxes(flat(below, 2000), strength, seed)
        assert torch.equal(dark[mask], other[mask])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("below", [0, 200])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_fill_at_any_strength_is_a_clamped_normal_blended_with_what_is_below(seed, below, strength):
    noisy, mask = boxes(flat(below, 200), strength, seed)
    middle, spread = (1 - strength) * below + strength * 127.5, strength * 76.5
    assert_bytes(noisy[mask], ndtr((np.arange(1, 256) - middle) / spread))


@pytest.mark.parametrize("variant", ["fill", "wrap"])
def test_boxes_on_colour_frames_draw_every_channel_by_itself(variant):
    noisy, mask = boxes(flat(50, 50, RAW), variant=variant)
    red, green, _ = noisy[mask].view(-1, 3).double().T
    assert abs(np.corrcoef(red, green)[0, 1]) < 0.02
