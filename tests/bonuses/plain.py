"""The networks in plain NumPy and float64, from a module's weights: what bonuses must match."""

from __future__ import annotations

import numpy as np
import torch

import ssedb
from tests.toy import SIDE, Grid, transitions

SHAPE, ACTIONS = (4, SIDE, SIDE), 4


def make(name: str, seed: int = 0, **options):
    """A small bonus, with the scale of the observations set to something that shows."""
    torch.manual_seed(seed)
    bonus = ssedb.make_bonus(name, SHAPE, ACTIONS, **options)
    picture = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1))
    bonus.normalize.set(30 * picture, torch.tensor(40.0))
    for parameter in bonus.parameters():  # biases begin at 0, which would hide a missing one
        if parameter.ndim < 3 and parameter.abs().max() == 0:
            torch.nn.init.uniform_(parameter, -0.1, 0.1)
    return bonus


def batch(n: int = 12, seed: int = 0):
    """A few real transitions of the toy grid: (obs, actions, next_obs)."""
    obs, actions, next_obs = transitions(Grid(num_envs=4, seed=seed), -(-n // 4) + 2)
    return obs[:n], actions[:n], next_obs[:n]


def array(tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


def normalized(bonus, obs) -> np.ndarray:
    return (array(obs) - array(bonus.normalize.mean)) / float(bonus.normalize.std)


def lrelu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def dense(layer, x: np.ndarray) -> np.ndarray:
    return x @ array(layer.weight).T + array(layer.bias)


def conv(layer, x: np.ndarray) -> np.ndarray:
    """[B, C, H, W] to [B, O, h, w], window by window."""
    weight, stride = array(layer.weight), layer.stride[0]
    size = weight.shape[-1]
    rows = range(0, x.shape[2] - size + 1, stride)
    columns = range(0, x.shape[3] - size + 1, stride)
    out = np.empty((len(x), len(weight), len(rows), len(columns)))
    for i, r in enumerate(rows):
        for j, c in enumerate(columns):
            window = x[:, :, r : r + size, c : c + size]
            out[:, :, i, j] = np.tensordot(window, weight, axes=([1, 2, 3], [1, 2, 3])) + array(
                layer.bias
            )
    return out


def trunk(module, x: np.ndarray) -> np.ndarray:
    for layer in (module.conv1, module.conv2, module.conv3):
        x = lrelu(conv(layer, x))
    return np.moveaxis(x, 1, 3).reshape(len(x), -1)


def encoder(module, x: np.ndarray) -> np.ndarray:
    return dense(module.dense, trunk(module.trunk, x))


def encoded(bonus, obs) -> np.ndarray:
    """Return observations as the bonus's encoder sees them, in float64."""
    return encoder(bonus.encoder, normalized(bonus, obs))


def forward_model(models, number: int, features: np.ndarray, actions) -> np.ndarray:
    """Compute one model of the ensemble, with the one-hot action in the input of every layer."""
    weight = np.concatenate([array(models.weight), array(models.action_weight)], 2)[
        :, number
    ]  # [layers, D + A, D]
    bias = array(models.bias)[:, number, 0]
    predicted = []
    for row, action in zip(features, array(actions).astype(int), strict=True):
        onehot = np.eye(models.action_weight.shape[2])[action]

        def layer(i, x, onehot=onehot):
            return np.concatenate([x, onehot]) @ weight[i] + bias[i]

        x = lrelu(layer(0, row))
        for block in range(4):
            x = x + layer(2 + 2 * block, lrelu(layer(1 + 2 * block, x)))
        predicted.append(layer(9, x))
    return np.array(predicted)


def residual(block, x: np.ndarray, extra: np.ndarray) -> np.ndarray:
    """x + W2 lrelu(W1 x), with `extra` (perhaps of no columns) beside the input of both layers."""
    hidden = lrelu(dense(block.first, np.concatenate([x, extra], 1)))
    return x + dense(block.second, np.concatenate([hidden, extra], 1))


def posterior(bonus, obs, actions) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of DB's z; the action joins the first layer, or every layer."""
    module, onehot = bonus.posterior, np.eye(bonus.num_actions)[array(actions).astype(int)]
    extra = onehot if bonus.options.action_input == "every" else onehot[:, :0]
    x = lrelu(
        dense(
            module.first,
            np.concatenate([encoder(bonus.encoder, normalized(bonus, obs)), onehot], 1),
        )
    )
    x = residual(module.residual2, residual(module.residual1, x, extra), extra)
    mean, raw = np.split(dense(module.last, np.concatenate([x, extra], 1)), 2, axis=1)
    return mean, np.clip(softplus(raw), 1e-3, 1e5)


def prediction(bonus, z: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean [B, S] and std (None where it is the batch's own) of DB's next state."""
    body, none = bonus.head.trunk, np.zeros((len(z), 0))
    x = residual(body.residual2, residual(body.residual1, lrelu(dense(body.first, z)), none), none)
    hidden = lrelu(dense(body.widen, x))
    mean = residual(bonus.head.mean, hidden, none)
    if bonus.options.prediction_std == "head":
        return mean, softplus(dense(bonus.head.std, hidden)) + 1e-3
    if bonus.options.prediction_std == "scalar":
        return mean, np.maximum(softplus(array(bonus.head.free_std)), 0.1)
    return mean, None


def projection(module, x: np.ndarray) -> np.ndarray:
    """Dense, LayerNorm, ReLU, dense, LayerNorm."""

    def layer_norm(layer, x):
        scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
        return scaled * array(layer.weight) + array(layer.bias)

    hidden = np.maximum(layer_norm(module[1], dense(module[0], x)), 0)
    return layer_norm(module[4], dense(module[3], hidden))


def kl(mean: np.ndarray, std: np.ndarray, other_mean: np.ndarray, other_std: np.ndarray) -> float:
    """KL of one diagonal Gaussian from another, dimension by dimension."""
    total = 0.0
    for m, s, om, os in zip(mean, std, other_mean, other_std, strict=True):
        total += np.log(os / s) + (s**2 + (m - om) ** 2) / (2 * os**2) - 0.5
    return total


def gain(eta: np.ndarray, past: np.ndarray, ridge: float) -> np.ndarray:
    """The root of c/2 log(1 + eta' (ridge I + sum of eta eta')^-1 eta), row by row."""
    precision = ridge * np.eye(eta.shape[1])
    for row in past:
        precision += np.outer(row, row)
    return np.array(
        [np.sqrt(10 / 2 * np.log(1 + row @ np.linalg.solve(precision, row))) for row in eta]
    )
