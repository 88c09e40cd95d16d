"""Proximal policy optimisation: the advantage estimate and the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from ssedb.actions import ActionSpace, Choices
from ssedb.normalize import discounted_sums


def advantages_and_returns(
    rewards: Tensor, values: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return generalised advantage estimates and the value targets.

    A_t = sum_k (gamma lambda)^k delta_{t+k}, delta_t = r_t + gamma v_{t+1} - v_t, and A_t + v_t.
    The task is treated as one without end: exploration continues through an episode's end, so ends
    are not looked at. That makes A a discounted sum of delta, backward in time.

    Args:
        rewards: [T, N].
        values: [T + 1, N].
        gamma: discount.
        gae_lambda: lambda.

    Returns:
        Advantages and value targets, each [T, N].
    """
    deltas = rewards + gamma * values[1:] - values[:-1]
    after = torch.zeros_like(deltas[0])  # nothing is known beyond the last value
    sums = discounted_sums(deltas.flip(0), after, gamma * gae_lambda)
    advantages = sums.flip(0).to(deltas.dtype)
    return advantages, advantages + values[:-1]


def normalize_advantages(advantages: Tensor) -> Tensor:
    """Return (A - mean(A)) / (std(A) + 1e-7) of advantages A [T, N] over the whole rollout."""
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-7)


def ppo_loss(
    outputs: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip: float,
    entropy_coef: float,
    space: ActionSpace | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of PPO: clipped surrogate, half the squared value error, entropy.

    -E[min(rho A, clamp(rho, 1 - clip, 1 + clip) A)] + E[(v - R)^2] / 2 - entropy_coef H, with
    rho the ratio of the new to the old probability of an action.

    Args:
        outputs: of the policy, [B, P]: logits, or what else the action space asks for.
        values: v, [B].
        actions: [B, *shape], int64 [B] for one choice.
        old_log_probs: of the actions when they were chosen, [B].
        advantages: A, [B].
        returns: R, [B].
        clip: how far the ratio counts.
        entropy_coef: weight of the entropy H.
        space: of the actions; one choice unless given.

    Returns:
        The loss, a scalar, and metrics without gradient.
    """
    space = Choices((outputs.shape[-1],), single=True) if space is None else space
    log_probs, entropies = space.evaluate(outputs, actions)
    entropy = entropies.mean()
    log_ratio = log_probs - old_log_probs
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
        **space.metrics(outputs),
    }
    return loss, {name: value.detach() for name, value in metrics.items()}


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """Return 1 - Var(R - v) / Var(R) of values and returns [T, N]; 0 if returns do not vary."""
    variance = returns.var(correction=0)
    return torch.where(variance > 0, 1 - (returns - values).var(correction=0) / variance, 0.0)
