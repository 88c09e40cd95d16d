"""Clouds: where they are bright, and how they drift."""

import pytest
import torch

from ssedb.noises.clouds import Clouds
from tests.noises.draws import flat, generator


class OneCloud(Clouds):
    count = 1


def drift(places: torch.Tensor) -> torch.Tensor:
    memory = Clouds().advance({"clouds": places}, torch.empty(0), torch.empty(0), generator())
    return memory["clouds"]


def test_clouds_at_first_are_six_anywhere():
    places = Clouds().begin(500, 4, generator())["clouds"]
    assert places.shape == (500, 6, 2)
    assert places.mean().item() == pytest.approx(0.5, abs=0.02)
    assert places.std().item() == pytest.approx(12**-0.5, abs=0.01)


def test_clouds_in_a_step_drift_a_little_and_independently():
    moved = drift(torch.full((2000, 6, 2), 0.5)) - 0.5
    assert moved.std().item() == pytest.approx(0.03, rel=0.03)
    assert moved.mean().item() == pytest.approx(0, abs=0.001)
    assert (drift(torch.zeros(100, 6, 2)) >= 0).all()  # round the edges


def test_cloud_at_an_edge_is_bright_on_both_sides():
    frames, memory = flat(0, 1), {"clouds": torch.tensor([[[0.0, 0.5]]])}
    noisy, mask = OneCloud().disturb_frames(frames, memory, generator(), want_mask=True)
    assert noisy[0, 0, 42] == 160
    assert noisy[0, 83, 42] > 140  # beyond the upper edge is the lower one
    assert noisy[0, 42, 42] == 0
    assert torch.equal(mask, noisy != frames)
