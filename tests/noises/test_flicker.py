"""Flicker: whole fields grow brighter and darker."""

import pytest
import torch

from ssedb.noises.flicker import Flicker
from tests.noises.draws import flat, generator


def test_flicker_at_half_strength_moves_whole_fields_by_30():
    noise = Flicker(0.5)
    noisy, mask = noise.disturb_frames(flat(128, 300), {}, generator(), want_mask=True)
    fields = noisy.view(300, 4, 21, 4, 21)
    assert (fields == fields[:, :, :1, :, :1]).all()
    assert (fields[:, :, 0, :, 0].float() - 128).std().item() == pytest.approx(30, abs=1.5)
    assert mask.all()
    alike = torch.corrcoef(fields[:, :, 0, :, 0].flatten(1).double().T) - torch.eye(16)
    assert alike.abs().max() < 0.3
