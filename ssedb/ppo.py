"""Proximal policy optimisation: the advantage estimate and the loss."""

from __future__ import annotations

import torch
from torch import Tensor


def advantages_and_returns(
    rewards: Tensor, values: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the value targets: rewards [T, N], values [T + 1, N] to twice [T, N].

    The task is treated as one without end: exploration goes on through an episode's end, so ends are not looked at. That
    makes the backward sum one product with a triangle of powers of gamma * lambda.
    """
    deltas = rewards + gamma * values[1:] - values[:-1]
    steps = torch.arange(len(rewards), dtype=deltas.dtype, device=deltas.device)
    ahead = steps[None, :] - steps[:, None]
    weights = torch.where(
        ahead >= 0, (gamma * gae_lambda) ** ahead.clamp_min(0), 0.0
    )  # [T, T], upper triangle
    advantages = weights @ deltas
    return advantages, advantages + values[:-1]


def normalize_advantages(advantages: Tensor) -> Tensor:
    """Mean 0 and std 1 over the whole rollout."""
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-7)


def ppo_loss(
    logits: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip: float,
    entropy_coef: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped surrogate, half the squared value error and the entropy; all inputs [B], logits [B, A]."""
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    log_ratio = log_probs.gather(-1, actions[:, None]).squeeze(-1) - old_log_probs
    ratio = log_ratio.exp()
    policy_loss = -torch.minimum(
        advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)
    ).mean()
    value_loss = 0.5 * (values - returns).square().mean()
    loss = policy_loss + value_loss - entropy_coef * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip).float().mean(),
    }
    return loss, {name: value.detach() for name, value in metrics.items()}


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """1 for a perfect value function, 0 for a constant one; 0 where the returns do not vary."""
    variance = returns.var(correction=0)
    return torch.where(variance > 0, 1 - (returns - values).var(correction=0) / variance, 0.0)
