"""The conformance kit: checks that any bonus must pass, ours and other people's.

`ssedb check NAME` runs it, and so does pytest with `--ssedb-bonus NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ssedb.analysis.measures import noise_share
from ssedb.bonuses.base import Bonus
from ssedb.errors import Blamed, ConfigError, one_line
from ssedb.noises import noise_class, noises_over
from ssedb.testing import behaviour, contract
from ssedb.testing.subject import (
    NOISE_DRAWS,
    Failure,
    Fatal,
    Skip,
    Subject,
    real_transitions,
    reward_of,
    seeded,
)
from ssedb.transitions import Transitions, rewards_of

CHECKS: tuple[Callable[[Subject], None], ...] = (
    contract.reward_is_a_float_for_each_transition,
    contract.loss_is_a_scalar_with_metrics,
    contract.features_are_rows,
    contract.tensors_are_registered,
    contract.reward_is_finite,
    contract.reward_has_no_gradient,
    contract.reward_is_deterministic,
    contract.reward_changes_nothing,
    contract.diagnostics_change_nothing,
    contract.arguments_are_left_alone,
    behaviour.loss_decreases,
    behaviour.fixed_parts_stay,
    behaviour.saving_and_loading_keeps_the_rewards,
    behaviour.masked_pairs_do_not_count,
    behaviour.order_does_not_matter,
    behaviour.single_transition,
    behaviour.huge_batch,
    behaviour.bytes_and_floats_agree,
    behaviour.vectors_are_rewarded_too,
    behaviour.bonus_reaches_the_policy,
)
"""All checks, in the order of a report."""


@dataclass(frozen=True)
class Result:
    """Outcome of one check."""

    name: str
    outcome: Literal["pass", "fail", "skip"]
    why: str
    fatal: bool = False
    """Whether the failure leaves nothing else to check."""


def sentence(check: Callable[[Any], None]) -> str:
    """Return what a check demands, from its docstring."""
    return (check.__doc__ or "").removeprefix("Check that ").removesuffix(".")


def run_check(check: Callable[[Any], None], subject: Any) -> Result:
    """Run one check; an error of the subject is a failure as well."""
    try:
        with seeded(subject.device):
            check(subject)
    except Skip as skip:
        return Result(check.__name__, "skip", str(skip))
    except Failure as failure:
        return Result(check.__name__, "fail", str(failure), isinstance(failure, Fatal))
    except Blamed as error:  # its text says whose fault it is
        return Result(check.__name__, "fail", str(error))
    except Exception as error:  # anything the bonus may raise
        return Result(check.__name__, "fail", f"raised {one_line(error)}")
    return Result(check.__name__, "pass", sentence(check))


def run_checks(subject: Subject) -> Iterator[Result]:
    """Build a bonus and run its checks; end with a failure that leaves nothing else to check."""
    built = run_check(can_be_built, subject)
    if built.fatal:
        yield built
        return
    for check in CHECKS:
        result = run_check(check, subject)
        yield result
        if result.fatal:
            return


def can_be_built(subject: Subject) -> None:
    """Check that the class makes a bonus from the arguments that the trainer gives."""
    try:
        subject.fresh()
    except ConfigError as error:
        raise Fatal(str(error)) from error
    except Exception as error:  # whatever `__init__` raises
        how = "cls(obs_shape, num_actions, options)"
        raise Fatal(f"{subject.name} cannot be built as {how}: {one_line(error)}") from error


def check_bonus(name: str, device: str = "cpu", **options: Any) -> list[Result]:
    """Run all checks of a bonus.

    Args:
        name: of the bonus, or `package.module:Class`.
        device: where to compute.
        options: of the bonus.
    """
    subject = Subject(name, device, **options)
    return list(run_checks(subject))


def clean_bonus_varies(subject: Subject) -> bool:
    """Tell whether the bonus differs between the transitions without noise."""
    with seeded(subject.device):
        bonus = subject.trained()
        return _varies(reward_of(bonus, subject.batch(bonus)))


def sensitivity(subject: Subject) -> dict[str, float | None]:
    """Measure, for each noise on frames, the share of the bonus's variance that is the noise's.

    0 is blind to the noise. None where the bonus is the same for all transitions under every draw.
    The bonus is hardly trained; `ssedb analyze probe` measures a trained one.
    """
    with seeded(subject.device):
        bonus = subject.trained()
        return {
            noise: _share(bonus, real_transitions(subject.device, noise))
            for noise in noises_over("images")
            if noise_class(noise).changes_frames()
        }


def _share(bonus: Bonus, data: Transitions) -> float | None:
    rewards = torch.stack([rewards_of(bonus, data, draw) for draw in range(NOISE_DRAWS)])
    return noise_share(rewards) if _varies(rewards) else None


def _varies(rewards: Tensor) -> bool:
    return bool(rewards.std() > 1e-6 * rewards.abs().mean())
