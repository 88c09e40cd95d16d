"""Noise in appended dimensions, and noises over actions that are not one choice."""

import pytest
import torch

from ssedb.actions import Box, Choices
from ssedb.envs.noisy import NoiseState
from ssedb.noises import make_noise
from ssedb.noises.base import last_action, takes_last_action

FRAMES = torch.arange(12.0).view(4, 3)
BOX = Box((-1.0, 0.0), (1.0, 4.0))
NEVER = torch.zeros(4, dtype=torch.bool)


def noise_state(name, num_actions=5, strength=1.0, num_envs=4):
    return NoiseState(make_noise(name, strength), num_envs, num_actions, seed=0)


@pytest.mark.parametrize("name", ["gaussian-dims", "tv-dims"])
@pytest.mark.parametrize(("strength", "dims"), [(0.0, 0), (0.5, 4), (1.0, 8), (2.3, 19)])
def test_strength_is_the_number_of_dimensions(name, strength, dims):
    seen = noise_state(name, strength=strength).agent_frames(FRAMES)
    assert seen.shape == (4, 3 + dims)
    assert torch.equal(seen[:, :3], FRAMES)


def test_gaussian_dims_are_standard_normal_and_fresh_at_every_step():
    eyes = noise_state("gaussian-dims", num_envs=5000)
    frames = torch.zeros(5000, 3)
    first, second = (eyes.agent_frames(frames)[:, 3:] for _ in range(2))
    assert abs(float(first.mean())) < 0.02
    assert abs(float(first.std()) - 1) < 0.02
    assert abs(float((first * second).mean())) < 0.02


@pytest.mark.parametrize(
    ("num_actions", "pressing", "others"),
    [
        (5, torch.tensor([4]), torch.tensor([0])),
        (Choices((3, 2)), torch.tensor([0, 1]), torch.tensor([2, 0])),
        (BOX, torch.tensor([-1.0, 2.5]), torch.tensor([1.0, 1.5])),
    ],
)
@pytest.mark.parametrize("name", ["tv-dims", "noisy-tv"])
def test_tv_changes_only_with_the_last_action_of_any_space(name, num_actions, pressing, others):
    eyes = noise_state(name, num_actions)
    frames = FRAMES if name == "tv-dims" else torch.zeros(4, 84, 84, dtype=torch.uint8)
    before = eyes.agent_frames(frames)
    eyes.advance(others.expand(4, -1).squeeze(-1), NEVER)
    assert torch.equal(eyes.agent_frames(frames), before)
    actions = others.expand(4, -1).clone()
    actions[1] = pressing
    eyes.advance(actions.squeeze(-1), NEVER)
    changed = (eyes.agent_frames(frames) != before).flatten(1).any(1)
    assert changed.tolist() == [False, True, False, False]


@pytest.mark.parametrize(("last", "upper"), [(1.9, False), (2.0, False), (2.1, True)])
def test_upper_half_of_a_box_is_the_same_for_a_tv_and_for_codes(last, upper):
    action = torch.tensor([[0.0, last]])
    assert (BOX.code(action) >= 2).item() == upper
    assert takes_last_action(action, last_action(1, BOX, action.device)).item() == upper


@pytest.mark.parametrize("num_actions", [Choices((3, 2)), BOX])
def test_sticky_repeats_whole_actions_of_any_space_within_the_episode(num_actions):
    eyes = noise_state("sticky", num_actions, strength=4.0)  # always
    generator = torch.Generator().manual_seed(0)
    first, second = (num_actions.random(4, generator) for _ in range(2))
    executed = eyes.disturb_actions(first)
    assert torch.equal(executed, first)  # nothing came before
    eyes.advance(executed, torch.tensor([False, True, False, False]))
    again = eyes.disturb_actions(second)
    assert torch.equal(again[[0, 2, 3]], first[[0, 2, 3]])
    assert torch.equal(again[1], second[1])  # the episode had ended
