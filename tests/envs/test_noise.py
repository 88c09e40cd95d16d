"""Noise: exact masks and counts, both readings, and randomness that belongs to its owner."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    assert set(counts) == set(range(3, 13))
    assert abs(counts.mean() - 7.5) < 4 * np.sqrt(99 / 12 / 120)  # uniform on 3..12
    assert torch.equal(noisy[~mask], frames[~mask])
    assert (noisy != frames)[mask].float().mean() > 0.95


def test_boxes_sit_where_the_release_puts_them():
    _, mask = random_boxes(torch.zeros(200, *RAW, dtype=torch.uint8), 1.0, generator(), "wrap", want_mask=True)
    assert not mask[:, 200:].any()  # the lowest ten rows are never touched
    assert mask[:, :200].any(dim=(0, 3)).all()  # every other pixel is, sooner or later
    share = cells_touched(mask).mean(axis=0)
    assert share.min() > 0  # all 80 cells take part
    assert abs(share.mean() - 7.5 / 80) < 0.01


def test_wrap_around_has_the_released_statistics_on_black():
    noisy, mask = random_boxes(torch.zeros(200, *RAW, dtype=torch.uint8), 1.0, generator(), "wrap", want_mask=True)
    values = noisy[mask].float()
    assert values.mean().item() == pytest.approx(126.5, abs=0.5)
    assert values.std().item() == pytest.approx(81.6, abs=0.5)
    draws = (np.random.default_rng(0).normal(0, BOX_STD, 10**6)).astype(np.int64).astype(np.uint8)  # C's cast wraps
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(np.quantile(values, quantiles), np.quantile(draws, quantiles), atol=3)


def test_wrap_adds_to_what_is_there():
    frames = torch.full((50, *RAW), 250, dtype=torch.uint8)
    noisy, mask = random_boxes(frames, 0.05, generator(), "wrap", want_mask=True)
    values = noisy[mask]
    assert ((values < 20) | (values > 230)).all()  # around 250, beyond 255 from the bottom
    assert (values < 20).any()


def test_filled_boxes_hide_what_is_below():
    dark, mask = random_boxes(torch.zeros(100, *SMALL, dtype=torch.uint8), 1.0, generator(), want_mask=True)
    bright, _ = random_boxes(torch.full((100, *SMALL), 255, dtype=torch.uint8), 1.0, generator())
    assert torch.equal(dark[mask], bright[mask])
    assert dark[mask].float().mean().item() == pytest.approx(127.5, abs=2)


def test_pixel_noise_only_at_zeros_as_released():
    frames = torch.randint(0, 4, (20, *RAW), generator=generator()).to(torch.uint8)
    noisy, mask = pixel_noise(frames, 1.0, generator(), "zeros", want_mask=True)
    assert torch.equal(mask, frames == 0)
    assert torch.equal(noisy[~mask], frames[~mask])
    values = noisy[mask].float()
    assert (values == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)  # the negative half, and below 1
    assert values[values > 0].mean().item() == pytest.approx(80 * np.sqrt(2 / np.pi), abs=1.5)


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


@pytest.mark.parametrize("noise", ["random-box", "pixel", "sticky", "noisy-tv", "clouds", "flicker"])
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
    assert torch.equal(Observer(3, 4, noise, seed=1, strength=0.0).observe(frames), torch.zeros_like(first))


def test_tv_mask_is_the_corner():
    _, mask = show_tv(
        torch.zeros(2, *SMALL, dtype=torch.uint8), torch.ones(2, 28, 28, dtype=torch.uint8), 1.0, want_mask=True
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
