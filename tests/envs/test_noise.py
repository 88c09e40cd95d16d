"""Noise: exact masks and counts, both readings, and randomness that belongs to its owner."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import chi2

import ssedb
from ssedb.envs.noise import (
    BOX_STD,
    CLOUD_STEP,
    drift_clouds,
    flicker,
    pixel_noise,
    random_boxes,
    show_clouds,
    show_tv,
    sticky_actions,
)
from ssedb.envs.noisy import NoisyEnv, Observer
from tests.toy import Grid

RAW, SMALL = (210, 160, 3), (84, 84)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cells_touched(mask: torch.Tensor) -> np.ndarray:
    """[N, 10, 8]: the cells of the grid that are touched; every cell must be touched wholly or not at all."""
    mask = mask[..., 0] if mask.ndim == 4 else mask
    height, width = mask.shape[1] * 2 // 21, mask.shape[2] // 8
    part = mask[:, : 10 * height, : 8 * width].numpy().reshape(len(mask), 10, height, 8, width)
    touched, whole = part.any(axis=(2, 4)), part.all(axis=(2, 4))
    assert (touched == whole).all()
    outside = mask.clone()
    outside[:, : 10 * height, : 8 * width] = False
    assert not outside.any()
    return touched


@pytest.mark.parametrize("shape", [RAW, SMALL])
@pytest.mark.parametrize("reading", ["fill", "wrap"])
def test_boxes_are_3_to_12_whole_cells_of_the_grid(shape, reading):
    frames = torch.full((120, *shape), 100, dtype=torch.uint8)
    noisy, mask = random_boxes(frames, 1.0, generator(), reading, want_mask=True)
    counts = cells_touched(mask).sum(axis=(1, 2))
    assert 3 <= counts.min() <= counts.max() <= 12
    assert torch.equal(noisy[~mask], frames[~mask])
    assert (noisy != frames)[mask].float().mean() > 0.95


@pytest.mark.parametrize("seed", range(5))
def test_number_and_cells_of_boxes_are_uniform(seed):
    """Tiny frames, of 10x8 cells of 2x1 pixels. Chance alone exceeds each bound once in a million."""
    _, mask = random_boxes(
        torch.zeros(8000, 21, 8, dtype=torch.uint8), 1.0, generator(seed), want_mask=True
    )
    cells = cells_touched(mask)
    numbers = np.bincount(cells.sum(axis=(1, 2)), minlength=13)[3:]
    assert ((numbers - 800) ** 2 / 800).sum() < chi2.isf(1e-6, 9)
    by_cell, expected = cells.sum(axis=0), 8000 * 7.5 / 80
    # Cells of one frame exclude each other, which makes the sum a little smaller than a chi-square.
    assert ((by_cell - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 79)
    together = (cells[:, 0, 0] & cells[:, 0, 1]).sum()  # neighbours are no likelier than others
    share = np.mean([n * (n - 1) for n in range(3, 13)]) / (80 * 79)
    assert abs(together - 8000 * share) < 5 * np.sqrt(8000 * share)


def test_boxes_sit_where_the_release_puts_them():
    _, mask = random_boxes(
        torch.zeros(200, *RAW, dtype=torch.uint8), 1.0, generator(), "wrap", want_mask=True
    )
    assert not mask[:, 200:].any()  # the lowest ten rows are never touched
    assert mask[:, :200].any(dim=(0, 3)).all()  # every other pixel is, sooner or later
    share = cells_touched(mask).mean(axis=0)
    assert share.min() > 0  # all 80 cells take part
    assert abs(share.mean() - 7.5 / 80) < 5 * np.sqrt(99 / 12 / 200) / 80  # five standard errors


def test_wrap_around_has_the_released_statistics_on_black():
    noisy, mask = random_boxes(
        torch.zeros(200, *RAW, dtype=torch.uint8), 1.0, generator(), "wrap", want_mask=True
    )
    values = noisy[mask].float()
    assert values.mean().item() == pytest.approx(126.5, abs=0.5)
    assert values.std().item() == pytest.approx(81.6, abs=0.5)
    draws = (
        (np.random.default_rng(0).normal(0, BOX_STD, 10**6)).astype(np.int64).astype(np.uint8)
    )  # C's cast wraps
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(values, quantiles), np.quantile(draws, quantiles), atol=3
    )


@pytest.mark.parametrize("seed", range(3))
def test_wrap_adds_to_what_is_there(seed):
    frames = torch.full((50, *RAW), 250, dtype=torch.uint8)
    noisy, mask = random_boxes(frames, 0.05, generator(seed), "wrap", want_mask=True)
    values, std = noisy[mask], 0.05 * BOX_STD
    assert (
        (values < 24) | (values > 220)
    ).all()  # around 250, beyond 255 from the bottom; eight standard deviations
    wrapped = ndtr(-6 / std)
    assert abs((values < 24).double().mean().item() - wrapped) < 5 * np.sqrt(wrapped / len(values))


@pytest.mark.parametrize("seed", range(4))
def test_filled_boxes_hide_what_is_below_at_every_pixel(seed):
    """1.2 million pixels: rounding once let 3 in a million show through."""
    frames = torch.zeros(2000, *SMALL, dtype=torch.uint8)
    dark, mask = random_boxes(frames, 1.0, generator(seed), want_mask=True)
    for below, strength in ((255, 1.0), (77, 2.0)):  # more than all of a box cannot be filled
        other, _ = random_boxes(torch.full_like(frames, below), strength, generator(seed))
        assert torch.equal(dark[mask], other[mask])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("below", [0, 200])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_filled_boxes_are_a_clamped_normal_blended_with_what_is_below(seed, below, strength):
    frames = torch.full((200, *SMALL), below, dtype=torch.uint8)
    noisy, mask = random_boxes(frames, strength, generator(seed), want_mask=True)
    middle, spread = (1 - strength) * below + strength * 127.5, strength * 76.5
    assert_bytes(noisy[mask], ndtr((np.arange(1, 256) - middle) / spread))


def assert_bytes(values: torch.Tensor, below: np.ndarray) -> None:
    """Bytes are truncated draws of which the share below[k - 1] lies below k. Chance alone fails once in a million."""
    edges = np.array([1, 32, 64, 96, 128, 160, 192, 224, 255])
    shares = np.diff([0, *below[edges - 1], 1])
    counts = np.histogram(values.numpy(), [0, *edges, 256])[0]
    kept = shares * len(values) > 5  # rarer ones hardly tell
    expected = shares[kept] * len(values)
    assert ((counts[kept] - expected) ** 2 / expected).sum() < chi2.isf(1e-6, kept.sum())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
def test_pixel_noise_only_at_zeros_as_released(seed, strength):
    frames = torch.randint(0, 4, (4, *RAW), generator=generator()).to(torch.uint8)
    noisy, mask = pixel_noise(frames, strength, generator(seed), "zeros", want_mask=True)
    assert torch.equal(mask, frames == 0)
    assert torch.equal(noisy[~mask], frames[~mask])
    # max(N, 0) cast to a byte, which wraps: k stands for k, k + 256, k + 512 and so on.
    turns = 256 * np.arange(1, 40)[:, None]
    positive = ndtr((np.arange(1, 256) + turns) / (80 * strength)) - ndtr(turns / (80 * strength))
    assert_bytes(noisy[mask], ndtr(np.arange(1, 256) / (80 * strength)) + positive.sum(0))


def test_released_pixel_noise_is_numpys_cast_of_the_draws():
    """The noise is the generator's next normal numbers, so that numpy can repeat it."""
    frames = torch.randint(0, 3, (4, *RAW), generator=generator()).to(torch.uint8)
    noisy, _ = pixel_noise(frames, 4.0, generator(1), "zeros")
    draws = np.maximum(320 * torch.randn(frames.shape, generator=generator(1)).numpy(), 0)
    assert draws.max() > 1024
    expected = np.where(frames == 0, draws.astype(np.int64).astype(np.uint8), frames)
    np.testing.assert_array_equal(noisy.numpy(), expected)


def test_pixel_noise_on_every_pixel_as_in_the_paper():
    frames = torch.full((20, *SMALL), 127, dtype=torch.uint8)
    noisy, mask = pixel_noise(frames, 0.25, generator(), "add", want_mask=True)
    assert mask.all()
    assert (noisy.float() - 127).std().item() == pytest.approx(20, abs=0.3)


@pytest.mark.parametrize("noise", [random_boxes, pixel_noise])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), released=st.booleans())
def test_noise_is_a_pure_function_of_its_generator(noise, seed, released):
    reading = {random_boxes: ("fill", "wrap"), pixel_noise: ("add", "zeros")}[noise][released]
    frames = torch.zeros(4, 42, 32, dtype=torch.uint8)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, _ = noise(frames, 1.0, generator(seed), reading)
    second, _ = noise(frames, 1.0, generator(seed), reading)
    other, _ = noise(frames, 1.0, generator(seed + 1), reading)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])  # each env has noise of its own
    assert not frames.any()  # the input is left alone
    assert torch.equal(torch.get_rng_state(), before)
    nothing, _ = noise(frames, 0.0, generator(seed), reading)
    assert torch.equal(nothing, frames)


def test_sticky_frequency_and_what_is_repeated():
    actions, previous = torch.ones(40_000, dtype=torch.int64), torch.full((40_000,), 7)
    executed, stuck = sticky_actions(actions, previous, 1.0, generator())
    assert torch.equal(executed, torch.where(stuck, 7, 1))
    assert abs(stuck.float().mean().item() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 40_000)
    assert not sticky_actions(actions, torch.full_like(previous, -1), 1.0, generator())[1].any()
    assert not sticky_actions(actions, previous, 0.0, generator())[1].any()


class Recorder(Grid):
    """Writes down what it is told to do."""

    def __init__(self) -> None:
        super().__init__(num_envs=64, episode=5)
        self.executed: list[torch.Tensor] = []

    def act(self, actions):
        self.executed.append(actions.clone())
        return super().act(actions)


def test_sticky_env_repeats_the_executed_action_and_never_across_an_end():
    source = Recorder()
    env = NoisyEnv(source, "sticky", seed=3)
    env.reset()
    chosen = [torch.full((64,), t % 4) for t in range(50)]
    for actions in chosen:
        env.step(actions)
    stuck = torch.stack([e != c for e, c in zip(source.executed, chosen, strict=True)])
    assert not stuck[::5].any()  # the first step of each episode has nothing to repeat
    inside = stuck[[t for t in range(50) if t % 5]].float()
    assert abs(inside.mean().item() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / inside.numel())
    repeated = torch.stack(source.executed)
    for t in (t for t in range(50) if t % 5):
        assert torch.equal(repeated[t][stuck[t]], repeated[t - 1][stuck[t]])


@pytest.mark.parametrize(
    "noise", ["random-box", "pixel", "sticky", "noisy-tv", "clouds", "flicker"]
)
def test_noisy_env_restores_exactly(noise):
    env, twin = (NoisyEnv(Grid(num_envs=4), noise, seed=5) for _ in range(2))
    for e in (env, twin):
        e.reset()
    env.step(torch.tensor([0, 1, 2, 3]))
    twin.load_state_dict(env.state_dict())
    for _ in range(30):
        first, second = env.step(torch.tensor([3, 2, 1, 0])), twin.step(torch.tensor([3, 2, 1, 0]))
        assert torch.equal(first.frames, second.frames)


def test_the_tv_changes_only_when_its_button_is_pressed():
    env = NoisyEnv(Grid(num_envs=3, episode=10**6), "noisy-tv", seed=0)
    corner = [env.reset()[:, -28:, -28:].clone()]
    for actions in ([0, 3, 1], [1, 1, 3], [2, 3, 3]):  # 3, the last action, is the button
        corner.append(env.step(torch.tensor(actions)).frames[:, -28:, -28:].clone())
    changed = [[not torch.equal(a[i], b[i]) for i in range(3)] for a, b in pairwise(corner)]
    assert changed == [[False, True, False], [False, False, True], [False, True, True]]
    assert not torch.equal(corner[0][0], corner[0][1])
    assert corner[0].float().std() > 60


def test_clouds_drift_in_small_independent_steps():
    places = torch.full((2000, 6, 2), 0.5)
    moved = drift_clouds(places, generator()) - 0.5
    assert moved.std().item() == pytest.approx(CLOUD_STEP, rel=0.03)
    assert moved.mean().item() == pytest.approx(0, abs=0.001)
    assert (drift_clouds(torch.zeros(100, 6, 2), generator()) >= 0).all()  # round the edges


def test_clouds_are_bright_where_they_are_and_wrap():
    frames = torch.zeros(1, *SMALL, dtype=torch.uint8)
    noisy, mask = show_clouds(frames, torch.tensor([[[0.0, 0.5]]]), 1.0, want_mask=True)
    assert noisy[0, 0, 42] == 160
    assert noisy[0, 83, 42] > 140  # beyond the upper edge is the lower one
    assert noisy[0, 42, 42] == 0
    assert torch.equal(mask, noisy != frames)
    assert torch.equal(show_clouds(frames, torch.rand(1, 6, 2), 0.0)[0], frames)


def test_flicker_moves_whole_fields_up_and_down():
    frames = torch.full((300, *SMALL), 128, dtype=torch.uint8)
    noisy, mask = flicker(frames, 0.5, generator(), want_mask=True)
    fields = noisy.view(300, 4, 21, 4, 21)
    assert (fields == fields[:, :, :1, :, :1]).all()
    assert (fields[:, :, 0, :, 0].float() - 128).std().item() == pytest.approx(30, abs=1.5)
    assert mask.all()
    assert torch.equal(flicker(frames, 0.0, generator())[0], frames)


@pytest.mark.parametrize("noise", ["noisy-tv", "clouds", "flicker"])
def test_distractors_work_on_colour_and_belong_to_their_seed(noise):
    frames = torch.zeros(3, 84, 84, 3, dtype=torch.uint8)
    first, again, other = (Observer(3, 4, noise, seed=seed).observe(frames) for seed in (1, 1, 2))
    assert first.shape == (3, 84, 84)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(
        Observer(3, 4, noise, seed=1, strength=0.0).observe(frames), torch.zeros_like(first)
    )


def test_tv_mask_is_the_corner():
    _, mask = show_tv(
        torch.zeros(2, *SMALL, dtype=torch.uint8),
        torch.ones(2, 28, 28, dtype=torch.uint8),
        1.0,
        want_mask=True,
    )
    assert mask.sum().item() == 2 * 28 * 28
    assert mask[:, 56:, 56:].all()


def test_actions_may_be_an_array_or_a_list():
    for make in (np.asarray, list):
        env = ssedb.make_env("rooms-small", 3, noise="sticky", seed=1)
        env.reset()
        assert env.step(make([0, 1, 2])).frames.shape == (3, 84, 84)


def test_what_an_observer_remembers_stays_in_its_place_until_it_changes():
    observer = Observer(3, 4, "random-box", seed=1)
    screen, clouds = observer.screen, observer.clouds
    observer.begin()
    observer.load_state_dict(observer.state_dict())
    assert observer.screen is screen
    assert observer.clouds is clouds
