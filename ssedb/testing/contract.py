"""Checks of what a bonus returns, and of what its calls leave unchanged.

A check returns if all is well, raises `Failure` with a sentence if not, and `Skip` where there is
nothing to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ssedb.bonuses.base import Bonus
from ssedb.testing.subject import (
    SAMPLES,
    Failure,
    Skip,
    Subject,
    loss_of,
    require_tensor,
    reward_of,
)


def reward_is_a_float_for_each_transition(subject: Subject) -> None:
    """Check that reward returns float32 [B] on the device of its input."""
    bonus = subject.fresh()
    batch = subject.batch(bonus)
    reward = require_tensor(bonus.reward(*batch), "reward")
    found = (tuple(reward.shape), reward.dtype, reward.device)
    wanted = ((SAMPLES,), torch.float32, batch[0].device)
    for name, is_, should in zip(("shape", "dtype", "device"), found, wanted, strict=True):
        if is_ != should:
            raise Failure(f"the {name} of reward is {is_}, must be {should}")


def loss_is_a_scalar_with_metrics(subject: Subject) -> None:
    """Check that loss returns a scalar and a dict of tensors without gradient."""
    bonus = subject.fresh()
    loss, metrics = loss_of(bonus, subject.batch(bonus))
    if loss.shape != () or not loss.isfinite():
        found = f"of shape {tuple(loss.shape)} and worth {loss.detach().cpu().numpy()}"
        raise Failure(f"loss is {found}, must be a finite scalar")
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or value.requires_grad or value.numel() != 1:
            raise Failure(f"the metric {name!r} must be a tensor of one number without gradient")


def features_are_rows(subject: Subject) -> None:
    """Check that features returns [B, D] without gradient."""
    bonus = subject.fresh()
    features = bonus.features(*subject.batch(bonus)[:2])
    if features is None:
        raise Skip("it has no features")
    if features.ndim != 2 or len(features) != SAMPLES or features.requires_grad:
        gradient = "with" if features.requires_grad else "without"
        found = f"of shape {tuple(features.shape)} {gradient} gradient"
        raise Failure(f"features are {found}, must be [{SAMPLES}, D] without")


def tensors_are_registered(subject: Subject) -> None:
    """Check that every tensor is a parameter or a buffer, moved by .to(device) and saved."""
    for path, module in subject.trained().named_modules():
        for name, value in _loose_tensors(vars(module)):
            where = f"{path}.{name} ({tuple(value.shape)})".removeprefix(".")
            raise Failure(f"the tensor {where} is neither; use register_buffer")


def _loose_tensors(attributes: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in attributes.items():
        if name in ("_parameters", "_buffers", "_modules"):
            continue
        if isinstance(value, dict):
            value = list(value.values())
        inside = value if isinstance(value, (list, tuple)) else [value]
        yield from ((name, item) for item in inside if isinstance(item, Tensor))


def reward_is_finite(subject: Subject) -> None:
    """Check that reward is finite, before training and after some."""
    for make, when in ((subject.fresh, "untrained"), (subject.trained, "after some training")):
        bonus = make()
        reward = require_tensor(bonus.reward(*subject.batch(bonus)), "reward")
        if odd := int((~reward.isfinite()).sum()):
            raise Failure(f"{odd} of {len(reward)} rewards are not finite, {when}")


def reward_has_no_gradient(subject: Subject) -> None:
    """Check that reward carries no gradient."""
    bonus = subject.fresh()
    if require_tensor(bonus.reward(*subject.batch(bonus)), "reward").requires_grad:
        raise Failure("reward requires gradient; decorate it with torch.no_grad()")


def reward_is_deterministic(subject: Subject) -> None:
    """Check that the same call gives the same reward, bit for bit, where that is declared."""
    bonus = subject.trained()
    if not bonus.deterministic:
        raise Skip("it declares deterministic = False")
    first, second = (reward_of(bonus, subject.batch(bonus), seed) for seed in (0, 1))
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        most = (first - second).abs().max()
        raise Failure(f"two calls differ by up to {most:.3g}; fix it or set deterministic = False")


def reward_changes_nothing(subject: Subject) -> None:
    """Check that reward changes no state and, if deterministic, draws no random numbers."""
    bonus = subject.trained()
    batch = subject.batch(bonus)
    if _changes(bonus, "reward", lambda: bonus.reward(*batch)) and bonus.deterministic:
        raise Failure("reward drew random numbers, though it declares itself deterministic")


def diagnostics_change_nothing(subject: Subject) -> None:
    """Check that diagnostics returns scalars, changes no state and draws no random numbers."""
    bonus = subject.trained()
    metrics: dict[str, Tensor] = {}
    batch = subject.batch(bonus)[:3]
    if _changes(bonus, "diagnostics", lambda: metrics.update(bonus.diagnostics(*batch))):
        harm = "during collection that would change the actions"
        raise Failure(f"diagnostics drew random numbers; {harm}")
    for name, value in metrics.items():
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise Failure(f"diagnostics must be tensors of one number; {name} is {value!r}")


def arguments_are_left_alone(subject: Subject) -> None:
    """Check that observations, actions and mask that are handed in stay as they are."""
    bonus = subject.trained()
    obs, actions, next_obs, *context = subject.batch(bonus)
    mask = torch.arange(len(obs), device=obs.device) % 2 == 0
    given = {"obs": obs, "actions": actions, "next_obs": next_obs, "mask": mask}
    before = {name: value.clone() for name, value in given.items()}
    rows, masked = (obs, actions, next_obs), {"mask": mask} if bonus.uses_mask else {}
    calls: dict[str, Callable[[], object]] = {
        "reward": lambda: bonus.reward(*rows, *context),
        "features": lambda: bonus.features(obs, actions),
        "loss": lambda: bonus.loss(*rows, mask),
        "diagnostics": lambda: bonus.diagnostics(*rows),
        "observe": lambda: bonus.observe(*rows, *context, **masked),
    }
    for method, call in calls.items():
        call()
        if changed := [name for name in given if not torch.equal(given[name], before[name])]:
            raise Failure(f"{method} changes the {changed[0]} that it is given; copy it first")


def _changes(bonus: Bonus, what: str, call: Callable[[], object]) -> bool:
    """Raise Failure if a call changes the state; return whether it drew random numbers."""
    before = {name: value.clone() for name, value in bonus.state_dict().items()}
    random = _randomness(bonus.normalize.mean.device)
    call()
    after = bonus.state_dict()
    pairs = {name: (before[name].nan_to_num(), after[name].nan_to_num()) for name in after}
    if changed := ", ".join(name for name, pair in pairs.items() if not torch.equal(*pair)):
        raise Failure(f"{what} changed {changed}; what counts or remembers belongs in observe")
    return not torch.equal(_randomness(bonus.normalize.mean.device), random)


def _randomness(device: torch.device) -> Tensor:
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return torch.cat([torch.get_rng_state(), *on_gpu])
