"""Sizes, initialisation and layout of the building blocks."""

import pytest
import torch

from ssedb.errors import ConfigError
from ssedb.networks import ActorCritic, ConvTrunk, Encoder


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_of_the_released_networks():
    assert count(Encoder((4, 84, 84), (32, 64, 64), 512)) == 1_684_128
    assert count(ActorCritic((4, 84, 84), 4, (32, 64, 64), 512, ("linear", "relu", "relu"))) == 2_212_005


def test_policy_layers_are_as_named():
    obs = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    torch.manual_seed(0)
    linear = ActorCritic((4, 36, 36), 3, (4, 4, 4), 8, ("linear", "relu"))
    x = linear.trunk(linear.normalize(obs))
    expected = linear.dense[1](linear.dense[0](x)).relu()
    torch.testing.assert_close(linear(obs)[0], linear.policy(expected))
    torch.testing.assert_close(linear(obs)[1], linear.value(expected).squeeze(-1))


def test_every_unit_of_the_policy_starts_with_weights_of_norm_one():
    policy = ActorCritic((4, 36, 36), 3, (4, 4, 4), 8, ("relu", "relu"))
    for layer in (*policy.dense, policy.policy, policy.value):
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.weight)))


def test_layout_does_not_change_the_result():
    trunk = ConvTrunk((4, 84, 84), (8, 8, 8))
    x = torch.randn(3, 4, 84, 84)
    by_hand = x
    for conv in (trunk.conv1, trunk.conv2, trunk.conv3):
        weight = conv.weight.contiguous()
        by_hand = torch.nn.functional.leaky_relu(torch.nn.functional.conv2d(by_hand, weight, conv.bias, conv.stride), 0.2)
    torch.testing.assert_close(trunk(x), by_hand.permute(0, 2, 3, 1).reshape(3, -1), rtol=1e-4, atol=1e-5)


def test_actions_are_drawn_as_the_logits_say():
    policy = ActorCritic((4, 36, 36), 3, (4, 4, 4), 8, ("relu", "relu"))
    with torch.no_grad():
        policy.policy.weight.zero_()
        policy.policy.bias.copy_(torch.tensor([0.7, 0.2, 0.1]).log())
    torch.manual_seed(0)
    actions, log_probs, _ = policy.act(torch.zeros(20_000, 4, 36, 36, dtype=torch.uint8))
    share = actions.bincount(minlength=3) / len(actions)
    torch.testing.assert_close(share, torch.tensor([0.7, 0.2, 0.1]), atol=0.015, rtol=0)
    torch.testing.assert_close(log_probs, torch.tensor([0.7, 0.2, 0.1]).log()[actions])


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(ConfigError, match="36 or more"):
        ConvTrunk((4, 30, 30), (8, 8, 8))
