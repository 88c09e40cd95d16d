"""Networks: encoders of images and vectors, residual MLPs, projection, ensembles, actor-critic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, leaky_relu, pixel_unshuffle, relu, softplus

from ssedb.actions import Box, Choices, NumActions, action_space
from ssedb.compiled import compiled
from ssedb.errors import ConfigError
from ssedb.normalize import BLOCK, make_obs_norm

LEAK = 0.2
L = TypeVar("L", nn.Linear, nn.Conv2d)


def glorot(layer: L) -> L:
    """Initialise a layer with Glorot-uniform weights and zero biases."""
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def normc(layer: nn.Linear) -> nn.Linear:
    """Initialise a layer with Gaussian weights of norm 1 for each unit, and zero biases."""
    with torch.no_grad():
        weight = torch.randn_like(layer.weight)
        layer.weight.copy_(weight / weight.norm(dim=1, keepdim=True))
        nn.init.zeros_(layer.bias)
    return layer


@compiled
def _add_and_leak(x: Tensor, bias: Tensor) -> Tensor:
    return leaky_relu(x + bias.to(x.dtype)[:, None, None], LEAK)


class ConvTrunk(nn.Module):
    """Three convolutions (8x8/4, 4x4/2, 3x3/1), leaky ReLU.

    Input: [B, C, H, W], or in blocks (`ssedb.normalize.to_blocks`). Output: [B, out_dim].
    """

    compute_dtype = torch.float32
    """Dtype of the convolutions."""
    fuse = False
    """Whether bias and leaky ReLU are compiled into one kernel."""

    def __init__(self, obs_shape: tuple[int, ...], channels: Sequence[int]) -> None:
        super().__init__()
        c1, c2, c3 = channels
        self.conv1 = glorot(nn.Conv2d(obs_shape[0], c1, 8, 4))
        self.conv2 = glorot(nn.Conv2d(c1, c2, 4, 2))
        self.conv3 = glorot(nn.Conv2d(c2, c3, 3, 1))
        side = [(((s - 8) // 4 + 1 - 4) // 2 + 1) - 2 for s in obs_shape[1:]]
        if len(side) != 2 or min(side) < 1:
            raise ConfigError(
                f"obs_shape={tuple(obs_shape)}: the encoder takes [C, H, W] with H and W of 36 "
                "or more"
            )
        self.out_dim = c3 * side[0] * side[1]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        filters = self._filters(x)
        # A block is a stride of pixels.
        stride = self.conv1.stride if filters is self.conv1.weight else (1, 1)
        x = self._leaky_conv(x.to(self.compute_dtype), filters, self.conv1.bias, stride)
        x = self._leaky_conv(x, self.conv2.weight, self.conv2.bias, self.conv2.stride)
        x = self._leaky_conv(x, self.conv3.weight, self.conv3.bias, self.conv3.stride)
        # [B, h * w * c]: in channels_last this order needs no copy.
        return x.permute(0, 2, 3, 1).flatten(1).to(self.conv1.weight.dtype)

    def _leaky_conv(
        self, x: Tensor, filters: Tensor, bias: Tensor | None, stride: tuple[int, ...]
    ) -> Tensor:
        """Convolve in the module's precision, add the bias, apply the leaky ReLU."""
        filters = filters.to(x.dtype)
        if bias is None or not self.fuse:
            bias = None if bias is None else bias.to(x.dtype)
            return leaky_relu(conv2d(x, filters, bias, stride), LEAK)
        return _add_and_leak(conv2d(x, filters, None, stride), bias)

    def _filters(self, x: Tensor) -> Tensor:
        """Return the first convolution's filters: 8x8 over pixels, or 2x2 over 4x4 blocks."""
        weight = self.conv1.weight
        if x.shape[1] == weight.shape[1]:
            return weight
        return pixel_unshuffle(weight, BLOCK).contiguous(memory_format=torch.channels_last)


def dense_layers(sizes: Sequence[int]) -> nn.Sequential:
    """Make dense layers from each of some sizes to the next, a leaky ReLU after each."""
    layers = [glorot(nn.Linear(i, o)) for i, o in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.LeakyReLU(LEAK))))


class DenseTrunk(nn.Sequential):
    """Three dense layers with four units for each channel, leaky ReLU: [B, D] to [B, out_dim]."""

    UNITS = 4

    def __init__(self, dim: int, channels: Sequence[int]) -> None:
        sizes = [dim, *(self.UNITS * count for count in channels)]
        super().__init__(*dense_layers(sizes))
        self.out_dim = sizes[-1]


def make_trunk(obs_shape: tuple[int, ...], channels: Sequence[int]) -> ConvTrunk | DenseTrunk:
    """Make what every encoder begins with: convolutions for images [C, H, W], an MLP for [D]."""
    if len(obs_shape) == 1:
        return DenseTrunk(obs_shape[0], channels)
    return ConvTrunk(obs_shape, channels)


class Encoder(nn.Module):
    """Encoder f^S: a normalised observation, image (or in blocks) or vector, to a state [B, S]."""

    def __init__(self, obs_shape: tuple[int, ...], channels: Sequence[int], state_dim: int) -> None:
        super().__init__()
        self.trunk = make_trunk(obs_shape, channels)
        self.dense = glorot(nn.Linear(self.trunk.out_dim, state_dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.trunk(x))


class Residual(nn.Module):
    """Residual block x + W2 lrelu(W1 x), with `extra` [B, E] concatenated to both inputs."""

    def __init__(self, dim: int, extra_dim: int = 0) -> None:
        super().__init__()
        self.first = glorot(nn.Linear(dim + extra_dim, dim))
        self.second = glorot(nn.Linear(dim + extra_dim, dim))

    def forward(self, x: Tensor, extra: Tensor | None = None) -> Tensor:
        hidden = leaky_relu(self.first(_concat(x, extra)), LEAK)
        return x + self.second(_concat(hidden, extra))


def _concat(x: Tensor, extra: Tensor | None) -> Tensor:
    return x if extra is None else torch.cat([x, extra], -1)


class Posterior(nn.Module):
    """Posterior g^Z: state [B, S] and action vector [B, A] to mean and std of z, each [B, Z]."""

    def __init__(
        self,
        state_dim: int,
        action_dim: int,
        hidden_dim: int,
        latent_dim: int,
        action_everywhere: bool,
    ) -> None:
        super().__init__()
        extra = action_dim if action_everywhere else 0
        self.action_everywhere = action_everywhere
        self.first = glorot(nn.Linear(state_dim + action_dim, hidden_dim))
        self.residual1 = Residual(hidden_dim, extra)
        self.residual2 = Residual(hidden_dim, extra)
        self.last = glorot(nn.Linear(hidden_dim + extra, 2 * latent_dim))

    def forward(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        extra = action if self.action_everywhere else None
        x = leaky_relu(self.first(_concat(state, action)), LEAK)
        x = self.residual2(self.residual1(x, extra), extra)
        mean, raw = self.last(_concat(x, extra)).chunk(2, -1)
        return mean, softplus(raw).clamp(1e-3, 1e5)


class Trunk(nn.Module):
    """Trunk of the prediction head: z [B, Z] to the hidden layer below mean and std, [B, S]."""

    def __init__(self, latent_dim: int, hidden_dim: int, state_dim: int) -> None:
        super().__init__()
        self.first = glorot(nn.Linear(latent_dim, hidden_dim))
        self.residual1 = Residual(hidden_dim)
        self.residual2 = Residual(hidden_dim)
        self.widen = glorot(nn.Linear(hidden_dim, state_dim))

    def forward(self, z: Tensor) -> Tensor:
        x = leaky_relu(self.first(z), LEAK)
        return leaky_relu(self.widen(self.residual2(self.residual1(x))), LEAK)


class Projection(nn.Sequential):
    """Projection f^P: a state [B, S] to [B, Z], with layer norm after each layer."""

    def __init__(self, state_dim: int, hidden_dim: int, latent_dim: int) -> None:
        super().__init__(
            glorot(nn.Linear(state_dim, hidden_dim)),
            nn.LayerNorm(hidden_dim, eps=1e-3),
            nn.ReLU(),
            glorot(nn.Linear(hidden_dim, latent_dim)),
            nn.LayerNorm(latent_dim, eps=1e-3),
        )


class ForwardModels(nn.Module):
    """K forward models in one: features [B, D] and actions [B, ...] to next features [K, B, D].

    A model has a layer, four residual blocks and a layer, each with the action vector as input. A
    one-hot action times its weights is a row of them, so the rows are looked up.
    """

    BLOCKS = 4

    def __init__(self, models: int, dim: int, num_actions: NumActions) -> None:
        super().__init__()
        self.actions = action_space(num_actions)
        self._one_choice = isinstance(self.actions, Choices) and self.actions.single
        layers, action_dim = 2 * self.BLOCKS + 2, self.actions.width
        bound = (6 / (2 * dim + action_dim)) ** 0.5  # glorot over [features, action]
        self.weight = nn.Parameter(torch.empty(layers, models, dim, dim).uniform_(-bound, bound))
        self.action_weight = nn.Parameter(
            torch.empty(layers, models, action_dim, dim).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.zeros(layers, models, 1, dim))

    def _layer(self, number: int, x: Tensor, actions: Tensor) -> Tensor:
        weight = self.action_weight[number]
        by_action = weight[:, actions] if self._one_choice else actions @ weight  # [K, B, D]
        return torch.baddbmm(by_action + self.bias[number], x, self.weight[number])

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        if not self._one_choice:
            actions = self.actions.vector(actions)
        x = features.expand(self.weight.shape[1], *features.shape)
        x = leaky_relu(self._layer(0, x, actions), LEAK)
        for number in range(1, 2 * self.BLOCKS, 2):
            hidden = leaky_relu(self._layer(number, x, actions), LEAK)
            x = x + self._layer(number + 1, hidden, actions)
        return self._layer(2 * self.BLOCKS + 1, x, actions)

    def errors(self, features: Tensor, actions: Tensor, next_features: Tensor) -> Tensor:
        """Return the mean squared error of each model's prediction, [K, B]."""
        return (self(features, actions) - next_features).square().mean(-1)


class InverseModel(nn.Sequential):
    """Model that guesses the action from the features before and after it: [B, 2 D] to [B, A]."""

    def __init__(self, dim: int, num_actions: NumActions) -> None:
        actions = action_space(num_actions)
        super().__init__(
            glorot(nn.Linear(2 * dim, dim)), nn.ReLU(), glorot(nn.Linear(dim, actions.width))
        )
        self.actions = actions

    def errors(self, features: Tensor, actions: Tensor, next_features: Tensor) -> Tensor:
        """Return the error of each guess, [B]: cross-entropy of choices, squared of vectors."""
        return self.actions.errors(self(torch.cat([features, next_features], -1)), actions)


class Ensemble(nn.Module):
    """K networks of two hidden layers in one: [B, I] to [K, B, O]."""

    def __init__(self, models: int, in_dim: int, hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        sizes = [(in_dim, hidden_dim), (hidden_dim, hidden_dim), (hidden_dim, out_dim)]
        bounds = [(6 / (i + o)) ** 0.5 for i, o in sizes]  # glorot
        self.weights = nn.ParameterList(
            torch.empty(models, i, o).uniform_(-b, b)
            for (i, o), b in zip(sizes, bounds, strict=True)
        )
        self.biases = nn.ParameterList(torch.zeros(models, 1, o) for _, o in sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(len(self.weights[0]), *x.shape)
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, leaky_relu(x, LEAK) if number else x, weight)
        return x


class ActorCritic(nn.Module):
    """Policy and value: observations to the policy's outputs [B, P] and values [B].

    The outputs parametrise the distribution over the action space. For a box they are means, in
    units of the box, and logarithms of stds, which do not depend on the observation.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        num_actions: NumActions,
        channels: Sequence[int],
        width: int,
        layers: Sequence[str],
    ) -> None:
        super().__init__()
        self.actions = action_space(num_actions)
        self.normalize = make_obs_norm(obs_shape)
        self.trunk = make_trunk(obs_shape, channels)
        sizes = [self.trunk.out_dim, *[width] * len(layers)]
        self.dense = nn.ModuleList(normc(nn.Linear(i, o)) for i, o in pairwise(sizes))
        self.activations = tuple(layers)
        self.policy = normc(nn.Linear(width, self.actions.width))
        self.value = normc(nn.Linear(width, 1))
        if isinstance(self.actions, Box):
            self.log_std = nn.Parameter(torch.zeros(self.actions.width))
            with torch.no_grad():  # begin in the middle of the box, whatever is seen
                self.policy.weight.mul_(0.01)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(self.normalize.for_convs(obs))
        for layer, activation in zip(self.dense, self.activations, strict=True):
            x = layer(x)
            x = relu(x) if activation == "relu" else x
        return self._outputs(self.policy(x)), self.value(x).squeeze(-1)

    def _outputs(self, raw: Tensor) -> Tensor:
        if not isinstance(self.actions, Box):
            return raw
        middle, half = self.actions.scale(raw.device)
        log_std = (self.log_std + half.log()).expand_as(raw)
        return torch.cat([middle + half * raw, log_std], -1)

    @torch.no_grad()
    def make_uniform(self) -> None:
        """Make every choice equally likely for every observation; a Gaussian as wide as its box."""
        for parameter in self.policy.parameters():
            parameter.zero_()

    @torch.no_grad()
    def act(self, obs: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions.

        Args:
            obs: uint8 [B, C, H, W], or float32 [B, D].
            draws: of the action space's `fill`, [B, width]; drawn here unless given.

        Returns:
            Actions [B, *shape], their log-probabilities [B] and the values [B].
        """
        outputs, values = self(obs)
        if draws is None:
            draws = self.actions.fill(outputs.new_empty(len(outputs), self.actions.width))
        actions, log_probs = self.actions.draw(outputs, draws)
        return actions, log_probs, values
