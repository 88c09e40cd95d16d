"""The noisy TV: its corner, and its button."""

from itertools import pairwise

import torch

from ssedb.envs.noisy import NoisyEnv
from ssedb.noises.noisy_tv import NoisyTV
from tests.noises.draws import flat, generator
from tests.toy import Grid


def test_tv_changes_only_when_its_button_is_pressed():
    env = NoisyEnv(Grid(num_envs=3, episode=10**6), NoisyTV(), seed=0)
    corner = [env.reset()[:, -28:, -28:].clone()]
    for actions in ([0, 3, 1], [1, 1, 3], [2, 3, 3]):  # 3, the last action, is the button
        corner.append(env.step(torch.tensor(actions)).frames[:, -28:, -28:].clone())
    changed = [[not torch.equal(a[i], b[i]) for i in range(3)] for a, b in pairwise(corner)]
    assert changed == [[False, True, False], [False, False, True], [False, True, True]]
    assert not torch.equal(corner[0][0], corner[0][1])
    assert corner[0].float().std() > 60


def test_tv_mask_is_the_corner():
    noise = NoisyTV()
    memory = noise.begin(2, 4, generator())
    _, mask = noise.disturb_frames(flat(0, 2), memory, generator(), want_mask=True)
    assert mask.sum().item() == 2 * 28 * 28
    assert mask[:, 56:, 56:].all()
