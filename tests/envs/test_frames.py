"""Gray and resize against Pillow."""

import numpy as np
import torch

from ssedb.envs.frames import to_agent_frames
from tests.envs.pictures import pillow_frame


def test_resize_of_raw_frames_matches_pillow():
    raw = np.random.default_rng(0).integers(0, 256, (3, 210, 160, 3), dtype=np.uint8)
    raw[1, 50:120, 30:90] = 255  # some structure beside the noise
    ours = to_agent_frames(torch.from_numpy(raw)).numpy().astype(int)
    for frame, own in zip(raw, ours, strict=True):
        pillow = pillow_frame(frame)
        assert np.abs(own - pillow).max() <= 1
        assert (own == pillow).mean() > 0.99


def test_resize_of_flat_pictures_keeps_their_brightness():
    for value in (0, 1, 127, 255):
        raw = torch.full((1, 210, 160, 3), value, dtype=torch.uint8)
        assert (to_agent_frames(raw) == value).all()


def test_resize_of_a_gray_picture_of_the_right_size_changes_nothing():
    frames = torch.randint(0, 256, (2, 84, 84), dtype=torch.uint8)
    assert to_agent_frames(frames) is frames
    assert to_agent_frames(torch.zeros(2, 100, 90, dtype=torch.uint8)).shape == (2, 84, 84)
