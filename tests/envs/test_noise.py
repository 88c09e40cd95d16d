"""Noise: exact masks and counts, both readings, and randomness that belongs to its owner."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssedb.envs.noise import BOX_STD, NoisyEnv, pixel_noise, random_boxes, sticky_actions
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
    frames = torch.full((400, *shape), 100, dtype=torch.uint8)
    noisy, mask = random_boxes(frames, 1.0, generator(), reading, want_mask=True)
    counts = cells_touched(mask).sum(axis=(1, 2))
    assert set(counts) == set(range(3, 13))
    assert abs(counts.mean() - 7.5) < 4 * np.sqrt(99 / 12 / 400)  # uniform on 3..12
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


@pytest.mark.parametrize("noise", ["random-box", "pixel", "sticky"])
def test_noisy_env_restores_exactly(noise):
    env, twin = (NoisyEnv(Grid(num_envs=4), noise, seed=5) for _ in range(2))
    for e in (env, twin):
        e.reset()
    env.step(torch.tensor([0, 1, 2, 3]))
    twin.load_state_dict(env.state_dict())
    for _ in range(30):
        first, second = env.step(torch.tensor([3, 2, 1, 0])), twin.step(torch.tensor([3, 2, 1, 0]))
        assert torch.equal(first.frames, second.frames)
