"""Checks that any bonus must pass, ours and other people's: `ssedb check NAME`, or pytest with `--ssedb-bonus`.

Each check is a function of a `Subject`. It returns if all is well, raises `Failure` with a sentence if not, and `Skip`
where there is nothing to check.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from ssedb.analysis.measures import noise_share
from ssedb.analysis.probe import Transitions, draw_transitions, experience, rewards_of
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus
from ssedb.collect.rollout import STACK
from ssedb.config import TrainConfig
from ssedb.engine.host import pick_device, tune_allocator
from ssedb.envs.rooms.world import World
from ssedb.noises import list_noises, make_noise, noise_class
from ssedb.trainer import Trainer

WORLD = "rooms-small"
SAMPLES, HUGE = 40, 2048
LEARNING_RATE, LEARNING_STEPS = 1e-3, 20
NOISE_DRAWS = 4


class Failure(AssertionError):
    """A bonus or a noise breaks its contract; the text says how."""


class Skip(Exception):
    """Nothing to check here; the text says why."""


@dataclass(frozen=True)
class Result:
    """What became of one check."""

    name: str
    outcome: Literal["pass", "fail", "skip"]
    why: str


class Subject:
    """A bonus by its name (or `package.module:Class`) and settings, and real transitions of a small Rooms world."""

    def __init__(self, name: str, device: str = "cpu", **options: Any) -> None:
        self.name, self.options, self.device = name, options, pick_device(device)
        tune_allocator()
        self.data = real_transitions(self.device)

    def fresh(self) -> Bonus:
        """A new instance that has seen nothing but the scale of the observations, as at the start of training."""
        shape = (STACK, *self.data.clean.shape[2:])
        bonus = make_bonus(
            self.name, shape, World.num_actions, preset="rooms", env=WORLD, **self.options
        ).to(self.device)
        frames = self.data.clean.float()
        bonus.normalize.set(frames.mean((0, 1)).expand(shape), frames.std(1).mean())
        return bonus

    def practised(self) -> Bonus:
        """One that has been through a few rounds of training."""
        bonus = self.fresh()
        practise(bonus, self.batch(bonus), rounds=3)
        return bonus

    def batch(self, bonus: Bonus) -> tuple[Any, ...]:
        """(obs, actions, next_obs) and, for a bonus that uses it, their context."""
        return experience(bonus, self.data, None, slice(None))


@cache
def real_transitions(device: torch.device, noise: str = "none") -> Transitions:
    """Transitions from all over the world, clean and under some draws of a noise."""
    return draw_transitions(
        World("small", device=device), None, SAMPLES, NOISE_DRAWS, make_noise(noise), seed=0
    )


def practise(bonus: Bonus, batch: tuple[Any, ...], rounds: int) -> None:
    """Rounds of what a trainer does with a rollout."""
    adam = _adam(bonus)
    for _ in range(rounds):
        bonus.observe(*batch)
        _step(bonus, batch, adam)
        bonus.after_epoch()
        bonus.after_rollout()


def _adam(bonus: Bonus) -> torch.optim.Optimizer | None:
    trained = [p for p in bonus.parameters() if p.requires_grad]
    return torch.optim.Adam(trained, lr=LEARNING_RATE) if trained else None


def _step(bonus: Bonus, batch: tuple[Any, ...], adam: torch.optim.Optimizer | None) -> None:
    loss, _ = bonus.loss(*batch[:3])
    if adam is not None and loss.requires_grad:
        adam.zero_grad()
        loss.sum().backward()
        adam.step()
    bonus.after_step()


def reward_of(bonus: Bonus, batch: tuple[Any, ...], seed: int = 0) -> Tensor:
    """The reward under a seed, so that one that draws can be compared with itself."""
    torch.manual_seed(seed)
    return bonus.reward(*batch).detach()


def require_close(actual: Tensor, expected: Tensor, what: str) -> None:
    """Equal up to the rounding of another order of sums. What is not finite is another check's."""
    actual, expected = actual.double(), expected.double()
    if not torch.allclose(actual, expected, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise Failure(
            f"{what}: they differ by up to {(actual - expected).abs().nan_to_num().max():.3g}"
        )


# The checks, in the order of a report.


def reward_is_a_float_for_each_transition(subject: Subject) -> None:
    """reward returns float32 [B] on the device of its input"""
    bonus = subject.fresh()
    batch = subject.batch(bonus)
    reward = bonus.reward(*batch)
    found = (tuple(reward.shape), reward.dtype, reward.device)
    wanted = ((SAMPLES,), torch.float32, batch[0].device)
    for name, is_, should in zip(("shape", "dtype", "device"), found, wanted, strict=True):
        if is_ != should:
            raise Failure(f"the {name} of reward is {is_}, must be {should}")


def loss_is_a_scalar_with_figures(subject: Subject) -> None:
    """loss returns a scalar and a dict of tensors without gradient"""
    bonus = subject.fresh()
    loss, figures = bonus.loss(*subject.batch(bonus)[:3])
    if loss.shape != () or not loss.isfinite():
        raise Failure(
            f"loss is of shape {tuple(loss.shape)} and worth {loss.detach().cpu().numpy()}, must be a finite scalar"
        )
    for name, value in figures.items():
        if not isinstance(value, Tensor) or value.requires_grad or value.numel() != 1:
            raise Failure(f"the figure {name!r} must be a tensor of one number without gradient")


def features_are_rows(subject: Subject) -> None:
    """features returns [B, D] without gradient"""
    bonus = subject.fresh()
    features = bonus.features(*subject.batch(bonus)[:2])
    if features is None:
        raise Skip("it has no features")
    if features.ndim != 2 or len(features) != SAMPLES or features.requires_grad:
        gradient = "with" if features.requires_grad else "without"
        raise Failure(
            f"features are of shape {tuple(features.shape)} {gradient} gradient, must be [{SAMPLES}, D] without"
        )


def tensors_are_registered(subject: Subject) -> None:
    """every tensor is a parameter or a buffer, so that it moves with .to(device) and is saved"""
    for path, module in subject.practised().named_modules():
        for name, value in _loose_tensors(vars(module)):
            where = f"{path}.{name}" if path else name
            raise Failure(
                f"the tensor {where} ({tuple(value.shape)}) is neither; use register_buffer"
            )


def _loose_tensors(attributes: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in attributes.items():
        if name in ("_parameters", "_buffers", "_modules"):
            continue
        inside = (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, (list, tuple))
            else [value]
        )
        yield from ((name, item) for item in inside if isinstance(item, Tensor))


def reward_is_finite(subject: Subject) -> None:
    """reward is finite, before training and after some"""
    for bonus, when in (
        (subject.fresh(), "untrained"),
        (subject.practised(), "after some training"),
    ):
        reward = bonus.reward(*subject.batch(bonus))
        if not reward.isfinite().all():
            raise Failure(
                f"{int((~reward.isfinite()).sum())} of {len(reward)} rewards are not finite, {when}"
            )


def reward_has_no_gradient(subject: Subject) -> None:
    """reward carries no gradient"""
    bonus = subject.fresh()
    if bonus.reward(*subject.batch(bonus)).requires_grad:
        raise Failure("reward requires gradient; decorate it with torch.no_grad()")


def reward_is_deterministic(subject: Subject) -> None:
    """the same call gives the same reward, bit for bit, where that is declared"""
    bonus = subject.practised()
    if not bonus.deterministic:
        raise Skip("it declares deterministic = False")
    first, second = (reward_of(bonus, subject.batch(bonus), seed) for seed in (0, 1))
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        raise Failure(
            f"two calls differ by up to {(first - second).abs().max():.3g}; fix it or set deterministic = False"
        )


def reward_changes_nothing(subject: Subject) -> None:
    """reward leaves the state as it was and, if deterministic, draws no random numbers"""
    bonus = subject.practised()
    batch = subject.batch(bonus)
    if _changes(bonus, "reward", lambda: bonus.reward(*batch)) and bonus.deterministic:
        raise Failure("reward drew random numbers, though it declares itself deterministic")


def diagnostics_change_nothing(subject: Subject) -> None:
    """diagnostics returns a dict of scalar tensors, leaves the state as it was and draws no random numbers"""
    bonus = subject.practised()
    figures: dict[str, Tensor] = {}
    batch = subject.batch(bonus)[:3]
    if _changes(bonus, "diagnostics", lambda: figures.update(bonus.diagnostics(*batch))):
        raise Failure("diagnostics drew random numbers; beside play that would change the actions")
    if odd := [
        name
        for name, value in figures.items()
        if not isinstance(value, Tensor) or value.numel() != 1
    ]:
        raise Failure(f"diagnostics must be tensors of one number; {odd[0]} is {figures[odd[0]]!r}")


def _changes(bonus: Bonus, what: str, call: Callable[[], object]) -> bool:
    """Fails if a call changes the state; returns whether it drew random numbers."""
    before = {name: value.clone() for name, value in bonus.state_dict().items()}
    random = _randomness(bonus.normalize.mean.device)
    call()
    if changed := [
        name for name, value in bonus.state_dict().items() if not torch.equal(value, before[name])
    ]:
        raise Failure(
            f"{what} changed {', '.join(changed)}; what counts or remembers belongs in observe"
        )
    return not torch.equal(_randomness(bonus.normalize.mean.device), random)


def _randomness(device: torch.device) -> Tensor:
    states = [torch.get_rng_state()]
    return torch.cat(
        [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states
    )


def loss_decreases(subject: Subject) -> None:
    """training on one batch lowers the loss"""
    bonus = subject.fresh()
    adam, batch = _adam(bonus), subject.batch(bonus)
    if adam is None:
        raise Skip("it has no trained parameters")
    if not bonus.loss(*batch[:3])[0].requires_grad:
        raise Failure("loss has no gradient, though there are parameters to train")
    before = _mean_loss(bonus, batch)
    for _ in range(LEARNING_STEPS):
        _step(bonus, batch, adam)
    after = _mean_loss(bonus, batch)
    if not after < before:
        raise Failure(
            f"{LEARNING_STEPS} steps of Adam on one batch took the loss from {before:.4g} to {after:.4g}"
        )


@torch.no_grad()
def _mean_loss(bonus: Bonus, batch: tuple[Any, ...]) -> float:
    with seeded(batch[0].device):
        return float(torch.stack([bonus.loss(*batch[:3])[0] for _ in range(4)]).mean())


def fixed_parts_stay(subject: Subject) -> None:
    """no gradient reaches the submodules named in `fixed`, and optimiser steps do not move them"""
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
        if not all(
            torch.equal(p, old) for p, old in zip(part.parameters(), before[name], strict=True)
        ):
            raise Failure(f"an optimiser step moved {name}")


def saving_and_loading_keeps_the_rewards(subject: Subject) -> None:
    """a new instance that loads the state_dict pays the same, and goes on in the same way"""
    bonus = subject.practised()
    batch = subject.batch(bonus)
    file = io.BytesIO()
    torch.save(bonus.state_dict(), file)
    file.seek(0)
    torch.manual_seed(1)
    twin = subject.fresh()
    twin.load_state_dict(torch.load(file, weights_only=True, map_location=subject.device))
    require_close(
        reward_of(twin, batch), reward_of(bonus, batch), "the rewards of a saved and a loaded bonus"
    )
    for each in (bonus, twin):
        torch.manual_seed(2)
        practise(each, batch, rounds=1)
    require_close(
        reward_of(twin, batch), reward_of(bonus, batch), "the same after one more round of training"
    )


def masked_pairs_do_not_count(subject: Subject) -> None:
    """what is in the rows that the mask leaves out does not change the loss or its gradient"""
    bonus = subject.fresh()
    obs, actions, next_obs, *_ = subject.batch(bonus)
    mask = torch.arange(SAMPLES, device=subject.device) % 3 != 0
    garbage = torch.randint(256, obs.shape, dtype=torch.uint8, device=subject.device)
    rows = mask[:, None, None, None]
    spoiled = torch.where(rows, obs, garbage), torch.where(rows, next_obs, garbage)
    other_actions = torch.where(mask, actions, (actions + 1) % World.num_actions)
    found = []
    for before, action, after in (
        (obs, actions, next_obs),
        (spoiled[0], other_actions, spoiled[1]),
    ):
        bonus.zero_grad()
        torch.manual_seed(0)
        loss, _ = bonus.loss(before, action, after, mask)
        if loss.requires_grad:
            loss.sum().backward()
        gradient = [p.grad.flatten() for p in bonus.parameters() if p.grad is not None]
        found.append((loss.detach(), torch.cat(gradient) if gradient else torch.zeros(1)))
    require_close(found[1][0], found[0][0], "the loss with and without garbage in the masked rows")
    scale = found[0][1].abs().max().clamp_min(1e-8)
    require_close(
        found[1][1] / scale,
        found[0][1] / scale,
        "its gradient with and without garbage in the masked rows",
    )


def order_does_not_matter(subject: Subject) -> None:
    """a batch in another order has its rewards in that order"""
    bonus = subject.practised()
    if not bonus.deterministic:
        raise Skip("it declares deterministic = False")
    batch = subject.batch(bonus)
    order = torch.randperm(SAMPLES).to(subject.device)
    require_close(
        reward_of(bonus, _rows(batch, order)),
        reward_of(bonus, batch)[order],
        "rewards in order and out of it",
    )


def single_transition(subject: Subject) -> None:
    """reward and loss take a batch of one"""
    bonus = subject.practised()
    _require_batch(
        bonus, subject.batch(bonus), torch.zeros(1, dtype=torch.int64, device=subject.device)
    )


def huge_batch(subject: Subject) -> None:
    """reward and loss take a batch of 2048"""
    bonus = subject.practised()
    _require_batch(bonus, subject.batch(bonus), torch.arange(HUGE, device=subject.device) % SAMPLES)


def _require_batch(bonus: Bonus, batch: tuple[Any, ...], rows: Tensor) -> None:
    usual = reward_of(bonus, batch)[rows].isfinite()
    picked = _rows(batch, rows)
    reward = reward_of(bonus, picked)
    if reward.shape != (len(rows),):
        raise Failure(
            f"the rewards of {len(rows)} transitions have the shape {tuple(reward.shape)}"
        )
    if not reward.isfinite()[usual].all():
        raise Failure(
            f"in a batch of {len(rows)} rewards are not finite that are in a batch of {SAMPLES}"
        )
    with torch.no_grad():
        if not bonus.loss(*picked[:3])[0].isfinite().all():
            raise Failure(f"the loss of a batch of {len(rows)} is not finite")


def _rows(batch: tuple[Any, ...], rows: Tensor) -> tuple[Any, ...]:
    """Some transitions; a context's episodes stay those of their transitions."""
    if len(batch) == 3:
        return tuple(x[rows] for x in batch)
    context = type(batch[3])(batch[3].episodes[rows], batch[3].states[rows])
    return (*(x[rows] for x in batch[:3]), context)


def bytes_and_floats_agree(subject: Subject) -> None:
    """observations as floats of the same scale (0 to 255) are paid like uint8"""
    bonus = subject.practised()
    obs, actions, next_obs, *context = subject.batch(bonus)
    floats = (obs.float(), actions, next_obs.float(), *context)
    expected = reward_of(bonus, (obs, actions, next_obs, *context))
    require_close(reward_of(bonus, floats), expected, "the rewards of uint8 and of float input")


def bonus_reaches_the_policy(subject: Subject) -> None:
    """two real updates of the policy differ with the bonus times 0 and times 1000"""
    bonus = subject.fresh()
    if not bonus.pays:
        raise Skip("it declares pays = False")
    reward = bonus.reward(*subject.batch(bonus))
    if reward.dtype != torch.float32 or not reward.isfinite().all():
        raise Skip("the trainer takes finite float32 rewards only")
    weights = []
    for scale in (0.0, 1000.0):
        # With some weight on the game's reward the policy is trained in both.
        config = TrainConfig(
            env=WORLD, preset="rooms", bonus=subject.name, bonus_options=subject.options, device=str(subject.device),
            num_envs=4, rollout_steps=16, minibatch_envs=2, ppo_epochs=1, bonus_epochs=1,
            intrinsic_coef=scale, extrinsic_coef=1.0,
        )  # fmt: skip
        trainer = Trainer(config)
        for _ in range(2):  # a bonus may be silent until it was trained once
            trainer.iterate()
        weights.append(torch.cat([p.detach().flatten() for p in trainer.policy.parameters()]))
    if torch.equal(*weights):
        raise Failure(
            "the policy learned the same whether the bonus was worth 0 or 1000 times itself"
        )


CHECKS: tuple[Callable[[Subject], None], ...] = (
    reward_is_a_float_for_each_transition,
    loss_is_a_scalar_with_figures,
    features_are_rows,
    tensors_are_registered,
    reward_is_finite,
    reward_has_no_gradient,
    reward_is_deterministic,
    reward_changes_nothing,
    diagnostics_change_nothing,
    loss_decreases,
    fixed_parts_stay,
    saving_and_loading_keeps_the_rewards,
    masked_pairs_do_not_count,
    order_does_not_matter,
    single_transition,
    huge_batch,
    bytes_and_floats_agree,
    bonus_reaches_the_policy,
)


@contextmanager
def seeded(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Random numbers that begin with a seed; the caller's go on afterwards as if nothing had been."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def run_check(check: Callable[[Any], None], subject: Any) -> Result:
    """One check, by itself; an error of the subject is a failure as well."""
    try:
        with seeded(subject.device):
            check(subject)
    except Skip as skip:
        return Result(check.__name__, "skip", str(skip))
    except Failure as failure:
        return Result(check.__name__, "fail", str(failure))
    except Exception as error:  # anything the bonus may raise
        reason = (str(error).strip().splitlines() or [""])[0]
        return Result(check.__name__, "fail", f"raised {type(error).__name__}: {reason}")
    demand = (check.__doc__ or "").strip().removeprefix("Check that ").removesuffix(".")
    return Result(check.__name__, "pass", demand)


def check_bonus(name: str, device: str = "cpu", **options: Any) -> list[Result]:
    """All checks of a bonus, by its name or `package.module:Class`."""
    subject = Subject(name, device, **options)
    return [run_check(check, subject) for check in CHECKS]


def sensitivity(subject: Subject) -> dict[str, float | None]:
    """For each noise on the pictures, the share of the bonus's variance that comes from redrawing it: 0 is blind to it.

    None where the bonus pays the same for all transitions under every draw. The bonus is hardly trained; on a run
    `ssedb analyze probe` measures what training has made of it.
    """
    with seeded(subject.device):
        bonus = subject.practised()
        return {
            noise: _share(bonus, real_transitions(subject.device, noise))
            for noise in list_noises()
            if noise_class(noise).changes_frames()
        }


def _share(bonus: Bonus, data: Transitions) -> float | None:
    rewards = torch.stack([rewards_of(bonus, data, draw) for draw in range(NOISE_DRAWS)])
    return noise_share(rewards) if rewards.std() > 1e-6 * rewards.abs().mean() else None
