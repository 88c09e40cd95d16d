"""Sizes, initialisation and layout of the building blocks."""

import pytest
import torch
from torch import nn

from ssedb.actions import Box
from ssedb.bonuses.db import PredictionHead
from ssedb.errors import ConfigError
from ssedb.networks import (
    ActorCritic,
    ConvTrunk,
    DenseTrunk,
    Encoder,
    Ensemble,
    Posterior,
    Projection,
    Trunk,
)
from ssedb.normalize import to_blocks
from ssedb.options import DBOptions
from tests.toy import TINY_OPTIONS


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_networks_as_released_have_their_parameter_counts():
    assert count(Encoder((4, 84, 84), (32, 64, 64), 512)) == 1_684_128
    assert (
        count(ActorCritic((4, 84, 84), 4, (32, 64, 64), 512, ("linear", "relu", "relu")))
        == 2_212_005
    )


def test_blocks_match_their_equations():
    torch.manual_seed(0)

    def lrelu(x):
        return torch.where(x > 0, x, 0.2 * x)

    def dense(layer, x):
        return x @ layer.weight.T + layer.bias

    def residual(block, x, extra=None):
        hidden = lrelu(dense(block.first, x if extra is None else torch.cat([x, extra], 1)))
        return x + dense(block.second, hidden if extra is None else torch.cat([hidden, extra], 1))

    state, action = 3 * torch.randn(5, 6), torch.eye(5)[:, :4]
    for everywhere in (False, True):
        posterior = Posterior(6, 4, 8, 3, everywhere)
        extra = action if everywhere else None
        x = lrelu(dense(posterior.first, torch.cat([state, action], 1)))
        x = residual(posterior.residual2, residual(posterior.residual1, x, extra), extra)
        out = dense(posterior.last, torch.cat([x, action], 1) if everywhere else x)
        mean, std = posterior(state, action)
        torch.testing.assert_close(mean, out[:, :3])
        torch.testing.assert_close(std, torch.log(1 + out[:, 3:].exp()).clamp(1e-3, 1e5))
    vectors = DenseTrunk(6, (1, 2, 3))
    hidden = [layer for layer in vectors if isinstance(layer, nn.Linear)]
    x = lrelu(dense(hidden[2], lrelu(dense(hidden[1], lrelu(dense(hidden[0], state))))))
    torch.testing.assert_close(vectors(state), x)
    trunk = Trunk(6, 8, 7)
    x = residual(trunk.residual2, residual(trunk.residual1, lrelu(dense(trunk.first, state))))
    torch.testing.assert_close(trunk(state), lrelu(dense(trunk.widen, x)))
    projection = Projection(6, 8, 3)
    small = 0.01 * state  # so small that the LayerNorms' epsilon of 1e-3 shows

    def layer_norm(x):
        return (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-3).sqrt()

    hidden = layer_norm(dense(projection[0], small)).clamp_min(0)
    torch.testing.assert_close(projection(small), layer_norm(dense(projection[3], hidden)))


def test_policy_layers_are_as_named():
    obs = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    torch.manual_seed(0)
    linear = ActorCritic((4, 36, 36), 3, (4, 4, 4), 8, ("linear", "relu"))
    x = linear.trunk(linear.normalize(obs))
    expected = linear.dense[1](linear.dense[0](x)).relu()
    torch.testing.assert_close(linear(obs)[0], linear.policy(expected))
    torch.testing.assert_close(linear(obs)[1], linear.value(expected).squeeze(-1))


def test_policy_units_start_with_weights_of_norm_one():
    policy = ActorCritic((4, 36, 36), 3, (4, 4, 4), 8, ("relu", "relu"))
    for layer in (*policy.dense, policy.policy, policy.value):
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.weight)))


def test_layers_begin_with_glorot_weights():
    """Uniform within sqrt(6 / (fan in + fan out)), biases 0."""
    torch.manual_seed(0)
    modules = (
        Encoder((4, 84, 84), (32, 64, 64), 64),
        Posterior(64, 4, 64, 32, True),
        Trunk(32, 64, 64),
        PredictionHead(DBOptions(**TINY_OPTIONS | dict(state_dim=1024, prediction_std="head"))),
    )
    layers = [
        layer
        for module in modules
        for layer in module.modules()
        if isinstance(layer, (nn.Conv2d, nn.Linear))
    ]
    assert len(layers) == 4 + 6 + 6 + 9
    ensemble = Ensemble(8, 32, 64, 16)
    weights = [layer.weight for layer in layers] + [w for model in ensemble.weights for w in model]
    for weight in weights:
        area = weight[0, 0].numel()
        bound = (6 / (area * (weight.shape[0] + weight.shape[1]))) ** 0.5
        assert 0.95 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    for bias in [layer.bias for layer in layers] + list(ensemble.biases):
        assert bias.abs().max() == 0


def test_channels_last_does_not_change_the_result():
    trunk = ConvTrunk((4, 84, 84), (8, 8, 8))
    x = torch.randn(3, 4, 84, 84)
    by_hand = x
    for conv in (trunk.conv1, trunk.conv2, trunk.conv3):
        weight = conv.weight.contiguous()
        by_hand = torch.nn.functional.leaky_relu(
            torch.nn.functional.conv2d(by_hand, weight, conv.bias, conv.stride), 0.2
        )
    torch.testing.assert_close(
        trunk(x), by_hand.permute(0, 2, 3, 1).reshape(3, -1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 38, 41)])
def test_first_convolution_over_blocks_is_the_same(shape):
    torch.manual_seed(0)
    trunk = ConvTrunk(shape, (8, 8, 8)).double()
    trunk.compute_dtype = torch.float64
    images = torch.randn(3, *shape, dtype=torch.float64)
    weights = list(trunk.parameters())
    plain, blocked = trunk(images), trunk(to_blocks(images))
    torch.testing.assert_close(blocked, plain)
    direction = torch.randn_like(plain)
    for a, b in zip(
        *(torch.autograd.grad(out, weights, direction) for out in (plain, blocked)), strict=True
    ):
        torch.testing.assert_close(a, b)


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


def test_policy_over_a_box_speaks_in_units_of_the_box():
    policy = ActorCritic((4,), Box((-1.0, 0.0), (1.0, 20.0)), (4, 4, 4), 8, ("relu",))
    with torch.no_grad():
        policy.policy.weight.zero_()
        policy.policy.bias.fill_(0.5)
    mean, log_std = policy(torch.zeros(1, 4))[0].chunk(2, -1)
    torch.testing.assert_close(mean, torch.tensor([[0.5, 15.0]]))  # half way from the middle
    torch.testing.assert_close(log_std.exp(), torch.tensor([[1.0, 10.0]]))


def test_networks_for_pictures_that_are_too_small_are_refused():
    with pytest.raises(ConfigError, match="36 or more"):
        ConvTrunk((4, 30, 30), (8, 8, 8))
