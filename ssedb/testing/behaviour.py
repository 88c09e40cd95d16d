"""Checks of how a bonus behaves: in training, when saved, in batches of any order and size.

A check returns if all is well, raises `Failure` with a sentence if not, and `Skip` where there is
nothing to check.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from ssedb.actions import Box
from ssedb.analysis.training import train_on_rollout, train_step
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context
from ssedb.config import TrainConfig
from ssedb.envs.rooms.world import World
from ssedb.errors import one_line
from ssedb.testing.subject import (
    ENV,
    SAMPLES,
    Failure,
    Skip,
    Subject,
    optimizer_of,
    require_close,
    reward_of,
    seeded,
)
from ssedb.trainer import Trainer

HUGE = 2048
VECTOR = 5
VECTOR_ENV = "Pendulum-v1"
"""An environment that observes vectors; what a bonus does by default may depend on it."""
LEARNING_STEPS = 20


def loss_decreases(subject: Subject) -> None:
    """Check that training on one batch lowers the loss."""
    bonus = subject.fresh()
    adam, batch = optimizer_of(bonus), subject.batch(bonus)
    if not any(p.requires_grad for p in bonus.parameters()):
        raise Skip("it has no trained parameters")
    if not bonus.loss(*batch[:3])[0].requires_grad:
        raise Failure("loss has no gradient, though there are parameters to train")
    before = _mean_loss(bonus, batch)
    for _ in range(LEARNING_STEPS):
        train_step(bonus, batch, adam)
    after = _mean_loss(bonus, batch)
    if not after < before:
        steps = f"{LEARNING_STEPS} steps of Adam on one batch"
        raise Failure(f"{steps} took the loss from {before:.4g} to {after:.4g}")


@torch.no_grad()
def _mean_loss(bonus: Bonus, batch: tuple[Any, ...]) -> float:
    with seeded(batch[0].device):
        return float(torch.stack([bonus.loss(*batch[:3])[0] for _ in range(4)]).mean())


def fixed_parts_stay(subject: Subject) -> None:
    """Check that no gradient and no optimiser step reaches the submodules in `fixed`."""
    bonus = subject.fresh()
    if not bonus.fixed:
        raise Skip("it names no fixed submodule")
    parts = {name: bonus.get_submodule(name) for name in bonus.fixed}
    before = {name: [p.clone() for p in part.parameters()] for name, part in parts.items()}
    loss, _ = bonus.loss(*subject.batch(bonus)[:3])
    if loss.requires_grad:
        loss.sum().backward()
        torch.optim.SGD(bonus.parameters(), lr=0.1).step()
    for name, part in parts.items():
        if any(p.grad is not None for p in part.parameters()):
            raise Failure(f"gradient reaches {name}; build it with requires_grad_(False)")
        if not all(map(torch.equal, part.parameters(), before[name])):
            raise Failure(f"an optimiser step moved {name}")


def saving_and_loading_keeps_the_rewards(subject: Subject) -> None:
    """Check that a bonus loaded from a state_dict has the same rewards, then and later."""
    bonus = subject.trained()
    batch = subject.batch(bonus)
    file = io.BytesIO()
    torch.save(bonus.state_dict(), file)
    file.seek(0)
    torch.manual_seed(1)
    twin = subject.fresh()
    twin.load_state_dict(torch.load(file, weights_only=True, map_location=subject.device))
    saved, loaded = (reward_of(each, batch) for each in (bonus, twin))
    require_close(loaded, saved, "the rewards of a saved and a loaded bonus")
    for each in (bonus, twin):
        torch.manual_seed(2)
        train_on_rollout(each, batch, optimizer_of(each))
    saved, loaded = (reward_of(each, batch) for each in (bonus, twin))
    require_close(loaded, saved, "the same after one more round of training")


def masked_pairs_do_not_count(subject: Subject) -> None:
    """Check that rows which the mask leaves out do not change the loss or its gradient."""
    bonus = subject.fresh()
    obs, actions, next_obs, *_ = subject.batch(bonus)
    mask = torch.arange(SAMPLES, device=subject.device) % 3 != 0
    garbage = torch.randint(256, obs.shape, dtype=torch.uint8, device=subject.device)
    rows = mask[:, None, None, None]
    others = torch.where(mask, actions, (actions + 1) % World.num_actions)
    spoiled = torch.where(rows, obs, garbage), others, torch.where(rows, next_obs, garbage)
    found = []
    for before, action, after in ((obs, actions, next_obs), spoiled):
        bonus.zero_grad()
        torch.manual_seed(0)
        loss, _ = bonus.loss(before, action, after, mask)
        if loss.requires_grad:
            loss.sum().backward()
        gradient = [p.grad.flatten() for p in bonus.parameters() if p.grad is not None]
        found.append((loss.detach(), torch.cat(gradient) if gradient else torch.zeros(1)))
    (loss, gradients), (other_loss, other_gradients) = found
    require_close(other_loss, loss, "the loss with and without garbage in the masked rows")
    scale = gradients.abs().max().clamp_min(1e-8)
    what = "its gradient with and without garbage in the masked rows"
    require_close(other_gradients / scale, gradients / scale, what)


def order_does_not_matter(subject: Subject) -> None:
    """Check that a batch in another order has its rewards in that order."""
    bonus = subject.trained()
    if not bonus.deterministic:
        raise Skip("it declares deterministic = False")
    batch = subject.batch(bonus)
    order = torch.randperm(SAMPLES).to(subject.device)
    shuffled = reward_of(bonus, _rows(batch, order))
    require_close(shuffled, reward_of(bonus, batch)[order], "rewards in order and out of it")


def single_transition(subject: Subject) -> None:
    """Check that reward and loss take a batch of one."""
    _require_batch(subject, 1)


def huge_batch(subject: Subject) -> None:
    """Check that reward and loss take a batch of 2048."""
    _require_batch(subject, HUGE)


def _require_batch(subject: Subject, size: int) -> None:
    bonus = subject.trained()
    batch, rows = subject.batch(bonus), torch.arange(size, device=subject.device) % SAMPLES
    usual = reward_of(bonus, batch)[rows].isfinite()
    picked = _rows(batch, rows)
    reward = reward_of(bonus, picked)
    if reward.shape != (size,):
        raise Failure(f"the rewards of {size} transitions have the shape {tuple(reward.shape)}")
    if not reward.isfinite()[usual].all():
        finite = f"rewards are not finite that are in a batch of {SAMPLES}"
        raise Failure(f"in a batch of {size} {finite}")
    with torch.no_grad():
        if not bonus.loss(*picked[:3])[0].isfinite().all():
            raise Failure(f"the loss of a batch of {size} is not finite")


def _rows(batch: tuple[Any, ...], rows: Tensor) -> tuple[Any, ...]:
    """Pick transitions; a context's episodes stay those of their transitions."""
    if len(batch) == 3:
        return tuple(x[rows] for x in batch)
    context = type(batch[3])(batch[3].episodes[rows], batch[3].states[rows])
    return (*(x[rows] for x in batch[:3]), context)


def bytes_and_floats_agree(subject: Subject) -> None:
    """Check that observations as floats from 0 to 255 are rewarded like uint8."""
    bonus = subject.trained()
    obs, actions, next_obs, *context = subject.batch(bonus)
    floats = (obs.float(), actions, next_obs.float(), *context)
    expected = reward_of(bonus, (obs, actions, next_obs, *context))
    require_close(reward_of(bonus, floats), expected, "the rewards of uint8 and of float input")


def vectors_are_rewarded_too(subject: Subject) -> None:
    """Check that vectors, with actions of several numbers, have finite float32 rewards as well."""
    subject.fresh()  # an error with images, too, says nothing of vectors
    space, device = Box((-1.0, 0.0), (1.0, 4.0)), subject.device
    obs, next_obs = torch.randn(2, SAMPLES, VECTOR, device=device)
    actions = torch.rand(SAMPLES, 2, device=device)
    settings: dict[str, Any] = {"preset": "rooms", "env": VECTOR_ENV, **subject.options}
    try:
        bonus = make_bonus(subject.name, (VECTOR,), space, **settings).to(device)
        if bonus.needs_states:
            raise Skip("it rewards true states, whatever the observations")
        context = [Context(torch.arange(SAMPLES, device=device))] * bonus.uses_context
        batch = (obs, actions, next_obs, *context)
        train_on_rollout(bonus, batch, optimizer_of(bonus))
        reward = reward_of(bonus, batch)
    except (Failure, Skip):
        raise
    except Exception as error:  # a bonus may be for images alone
        raise Skip(f"it is for images; with vectors it raises {one_line(error)}") from error
    if reward.shape != (SAMPLES,) or reward.dtype != torch.float32:
        raise Failure(f"the reward of {SAMPLES} vectors is {reward.dtype} {list(reward.shape)}")
    if not reward.isfinite().all():
        raise Failure("the reward of vectors is not finite")


def bonus_reaches_the_policy(subject: Subject) -> None:
    """Check that two real updates of the policy differ with the bonus times 0 and times 1000."""
    bonus = subject.fresh()
    if not bonus.gives_reward:
        raise Skip("it declares gives_reward = False")
    reward = reward_of(bonus, subject.batch(bonus))
    if reward.dtype != torch.float32 or not reward.isfinite().all():
        raise Skip("the trainer takes finite float32 rewards only")
    weights = []
    for scale in (0.0, 1000.0):
        # With some weight on the game's reward the policy is trained in both.
        config = TrainConfig(
            env=ENV, preset="rooms", device=str(subject.device),
            bonus=subject.name, bonus_options=subject.options,
            num_envs=4, rollout_steps=16, minibatch_envs=2, ppo_epochs=1, bonus_epochs=1,
            intrinsic_coef=scale, extrinsic_coef=1.0,
        )  # fmt: skip
        trainer = Trainer(config)
        for _ in range(2):  # a bonus may be silent until it was trained once
            trainer.iterate()
        weights.append(torch.cat([p.detach().flatten() for p in trainer.policy.parameters()]))
    if torch.equal(*weights):
        raise Failure("the policy learned the same with the bonus times 0 and times 1000")
