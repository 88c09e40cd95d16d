"""Subject of the conformance checks: a bonus, real transitions, a few rounds of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ssedb.analysis.training import make_adam, train_on_rollout
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus
from ssedb.collect.rollout import STACK
from ssedb.engine.host import pick_device, tune_allocator
from ssedb.envs.rooms.world import World
from ssedb.noises import make_noise
from ssedb.transitions import Transitions, draw_transitions, experience

ENV = "rooms-tiny"
SAMPLES = 40
NOISE_DRAWS = 4
LEARNING_RATE, ADAM_EPS = 1e-3, 1e-7


class Failure(AssertionError):
    """Breach of the contract of a bonus or a noise; the text says how."""


class Fatal(Failure):
    """Breach of the contract that leaves nothing else to check."""


class Skip(Exception):
    """Lack of anything to check; the text says why."""


class Subject:
    """A bonus to check, and real transitions of a tiny Rooms world.

    Args:
        name: of the bonus, or `package.module:Class`.
        device: where to compute.
        options: of the bonus.
    """

    def __init__(self, name: str, device: str = "cpu", **options: Any) -> None:
        self.name, self.options, self.device = name, options, pick_device(device)
        tune_allocator()
        self.data = real_transitions(self.device)

    def fresh(self) -> Bonus:
        """Make an instance that knows the scale of observations, as at the start of training."""
        shape = (STACK, *self.data.clean.shape[2:])
        settings: dict[str, Any] = {"preset": "rooms", "env": ENV, **self.options}
        bonus = make_bonus(self.name, shape, World.num_actions, **settings).to(self.device)
        frames = self.data.clean.float()
        bonus.normalize.set(frames.mean((0, 1)).expand(shape), frames.std(1).mean())
        return bonus

    def trained(self) -> Bonus:
        """Make an instance that has been through a few rounds of training."""
        bonus = self.fresh()
        adam = optimizer_of(bonus)
        for _ in range(3):
            train_on_rollout(bonus, self.batch(bonus), adam)
        return bonus

    def batch(self, bonus: Bonus) -> tuple[Any, ...]:
        """Return (obs, actions, next_obs), copied, and, for a bonus that uses it, their context."""
        obs, actions, next_obs, *context = experience(bonus, self.data, None, slice(None))
        return obs.clone(), actions.clone(), next_obs.clone(), *context


def optimizer_of(bonus: Bonus) -> torch.optim.Adam:
    """Make the optimizer of a few rounds of training."""
    return make_adam(bonus, LEARNING_RATE, ADAM_EPS)


@cache
def real_transitions(device: torch.device, noise: str = "none") -> Transitions:
    """Draw transitions of all over Rooms, clean and under some draws of a noise."""
    world = World("tiny", device=device)
    return draw_transitions(world, None, SAMPLES, NOISE_DRAWS, make_noise(noise), seed=0)


def reward_of(bonus: Bonus, batch: tuple[Any, ...], seed: int = 0) -> Tensor:
    """Return the reward under a seed, so that one that draws can be compared with itself."""
    torch.manual_seed(seed)
    return require_tensor(bonus.reward(*batch), "reward").detach()


def loss_of(bonus: Bonus, batch: tuple[Any, ...]) -> tuple[Tensor, dict[str, Any]]:
    """Return loss and metrics; raise Fatal unless they are a pair of a tensor and a dict."""
    returned = bonus.loss(*batch[:3])
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise Fatal(f"loss returned {_kind(returned)}, must be a pair: the loss, a dict of metrics")
    loss, metrics = returned
    require_tensor(loss, "loss")
    if not isinstance(metrics, dict):
        raise Fatal(f"the metrics of loss are {_kind(metrics)}, must be a dict")
    return loss, metrics


def require_tensor(value: Any, method: str) -> Tensor:
    """Return what a method has returned; raise Fatal unless it is a tensor."""
    if isinstance(value, Tensor):
        return value
    raise Fatal(f"{method} returned {_kind(value)}, must be a torch.Tensor")


def _kind(value: Any) -> str:
    """Return the type of a value, with its article."""
    if value is None:
        return "None"
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"a {kind}"


def require_close(actual: Tensor, expected: Tensor, what: str) -> None:
    """Raise Failure unless both are equal up to rounding; what is not finite is another check's."""
    actual, expected = actual.double(), expected.double()
    if not torch.allclose(actual, expected, rtol=1e-3, atol=1e-5, equal_nan=True):
        most = (actual - expected).abs().nan_to_num().max()
        raise Failure(f"{what}: they differ by up to {most:.3g}")


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """Draw random numbers from seed 0 in the block, and leave the caller's as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield
