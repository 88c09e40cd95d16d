"""Spaces of actions, and the policies over them: a choice, several choices, or a vector."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from ssedb.errors import ConfigError

LOG_2PI = math.log(2 * math.pi)
MOST_BITS = 31
"""Bits of a code, so that products of codes fit in 64."""
EXAMPLES = 16
"""Actions that stand for all where there are too many to go through."""


class ActionSpace(ABC):
    """Actions that an agent may take, and the distribution of a policy over them.

    A policy's network returns outputs [B, P] for observations, from which actions are drawn and
    their log-probabilities computed.
    """

    dtype: ClassVar[torch.dtype]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one action."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Size of an action as a vector, which is how models of the environment see it."""

    @property
    @abstractmethod
    def codes(self) -> int:
        """Number of codes that `code` tells apart."""

    @abstractmethod
    def vector(self, actions: Tensor) -> Tensor:
        """Return actions [B, *shape] as vectors, float32 [B, width]."""

    @abstractmethod
    def errors(self, guess: Tensor, actions: Tensor) -> Tensor:
        """Return the error of guesses [B, width] of the actions [B, *shape], [B]."""

    @abstractmethod
    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of actions [B, *shape] and the entropies, each [B]."""

    @abstractmethod
    def draw(self, outputs: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Draw actions.

        Args:
            outputs: of the policy, [B, P].
            draws: [B, width] of `fill`.

        Returns:
            Actions [B, *shape] and their log-probabilities [B].
        """

    @abstractmethod
    def fill(self, draws: Tensor) -> Tensor:
        """Fill a tensor [..., width] with what `draw` needs, from torch's generator."""

    @abstractmethod
    def likeliest(self, outputs: Tensor) -> Tensor:
        """Return the likeliest actions, [B, *shape]."""

    @abstractmethod
    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Return actions of an agent that knows nothing, [count, *shape]."""

    @abstractmethod
    def code(self, actions: Tensor) -> Tensor:
        """Return a number from 0 to `codes` - 1 for each action, int64 [B]."""

    def examples(self) -> Tensor:
        """Return some random actions as vectors [K, width], always the same; of few, all."""
        return self.vector(self.random(EXAMPLES, torch.Generator().manual_seed(0)))

    def clip(self, actions: Tensor) -> Tensor:
        """Return the actions as an environment takes them."""
        return actions

    def metrics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return what a log should hold of the distribution."""
        return {}


@dataclass(frozen=True)
class Choices(ActionSpace):
    """One choice, int64 [B], or several independent ones, int64 [B, K]; the outputs are logits.

    Attributes:
        sizes: how many options each choice has.
        single: whether there is one choice, and an action is a number.
    """

    sizes: tuple[int, ...]
    single: bool = False

    dtype: ClassVar[torch.dtype] = torch.int64

    @property
    def shape(self) -> tuple[int, ...]:
        """A number, or a choice each."""
        return () if self.single else (len(self.sizes),)

    @property
    def width(self) -> int:
        """All options together."""
        return sum(self.sizes)

    @property
    def codes(self) -> int:
        """All combinations of choices."""
        return min(math.prod(self.sizes), 2**MOST_BITS)

    def vector(self, actions: Tensor) -> Tensor:
        """Return the one-hot vectors of all choices, side by side."""
        parts = zip(self._columns(actions), self.sizes, strict=True)
        return torch.cat([one_hot(choice, size).float() for choice, size in parts], -1)

    def errors(self, guess: Tensor, actions: Tensor) -> Tensor:
        """Return the cross-entropy, summed over the choices."""
        parts = zip(guess.split(self.sizes, -1), self._columns(actions), strict=True)
        return _sum([cross_entropy(part, choice, reduction="none") for part, choice in parts])

    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return sums over the choices of log softmax(logits)[choice] and of -sum p log p."""
        log_probs = self._log_probs(outputs)
        entropies = [-(part.exp() * part).sum(-1) for part in log_probs]
        return _of_choices(log_probs, self._columns(actions)), _sum(entropies)

    def draw(self, outputs: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Draw by Gumbel-max: the largest of logit + Gumbel draw is a draw from the softmax."""
        log_probs = self._log_probs(outputs)
        parts = zip(log_probs, draws.split(self.sizes, -1), strict=True)
        choices = [(part - draw.log()).argmax(-1) for part, draw in parts]
        return self._joined(choices), _of_choices(log_probs, choices)

    def fill(self, draws: Tensor) -> Tensor:
        """Fill with exponential draws, whose -log follows the Gumbel distribution."""
        return draws.exponential_()

    def likeliest(self, outputs: Tensor) -> Tensor:
        """Return the option with the largest logit of each choice."""
        return self._joined([part.argmax(-1) for part in outputs.split(self.sizes, -1)])

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw uniformly."""
        choices = [torch.randint(size, (count,), generator=generator) for size in self.sizes]
        return self._joined(choices)

    def code(self, actions: Tensor) -> Tensor:
        """Return the number of the combination of choices."""
        columns = self._columns(actions)
        code = columns[0]
        for choice, size in zip(columns[1:], self.sizes[1:], strict=True):
            code = (code * size + choice) % 2**MOST_BITS
        return code

    def examples(self) -> Tensor:
        """Return the one-hot vectors of one choice, or random ones of several."""
        return torch.eye(self.width) if self.single else super().examples()

    def _log_probs(self, outputs: Tensor) -> list[Tensor]:
        return [part.log_softmax(-1) for part in outputs.split(self.sizes, -1)]

    def _columns(self, actions: Tensor) -> list[Tensor]:
        """Return the choices one by one, each [B]."""
        return [actions] if self.single else list(actions.unbind(-1))

    def _joined(self, choices: list[Tensor]) -> Tensor:
        return choices[0] if self.single else torch.stack(choices, -1)


def _of_choices(log_probs: list[Tensor], choices: list[Tensor]) -> Tensor:
    """Return the log-probabilities of what was chosen, summed over the choices, [B]."""
    parts = zip(log_probs, choices, strict=True)
    return _sum([part.gather(-1, choice[:, None]).squeeze(-1) for part, choice in parts])


def _sum(parts: list[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


@dataclass(frozen=True)
class Box(ActionSpace):
    """Vectors within bounds, float32 [B, D]; the outputs are D means and D logarithms of stds.

    A policy draws from independent Gaussians, and keeps what it has drawn. The environment, and
    all models of it, see actions within the bounds: beyond them nothing changes, and a bonus that
    grew there would draw the policy away for ever.

    Attributes:
        low: lowest value of each dimension; -inf for none.
        high: highest value of each dimension; inf for none.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    dtype: ClassVar[torch.dtype] = torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        """A number for each dimension."""
        return (len(self.low),)

    @property
    def width(self) -> int:
        """The number of dimensions, D."""
        return len(self.low)

    @property
    def codes(self) -> int:
        """All combinations of halves."""
        return int(2 ** min(self.width, MOST_BITS))

    def vector(self, actions: Tensor) -> Tensor:
        """Return the actions themselves, within the bounds."""
        return self.clip(actions)

    def clip(self, actions: Tensor) -> Tensor:
        """Return the nearest actions within the bounds."""
        return actions.clamp(*_bounds(self, actions.device)[:2])

    def errors(self, guess: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error."""
        return (guess - self.vector(actions)).square().mean(-1)

    def evaluate(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log N(a; mean, std^2 I) and sum(log(2 pi e) / 2 + log std), the entropy.

        That of a density may be negative.
        """
        mean, log_std = outputs.chunk(2, -1)
        return _log_density(actions, mean, log_std), (0.5 + 0.5 * LOG_2PI + log_std).sum(-1)

    def draw(self, outputs: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean + std * draw."""
        mean, log_std = outputs.chunk(2, -1)
        actions = mean + log_std.exp() * draws
        return actions, _log_density(actions, mean, log_std)

    def fill(self, draws: Tensor) -> Tensor:
        """Fill with draws of the standard normal distribution."""
        return draws.normal_()

    def likeliest(self, outputs: Tensor) -> Tensor:
        """Return the mean, within the bounds."""
        return self.clip(outputs.chunk(2, -1)[0])

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw uniformly; where a bound is missing, around the middle with std 1, within bounds."""
        low, high, middle, _ = _bounds(self, torch.device("cpu"))
        shape = (count, self.width)
        even = low + (high - low) * torch.rand(shape, generator=generator)
        normal = (middle + torch.randn(shape, generator=generator)).clamp(low, high)
        return torch.where((high - low).isfinite(), even, normal)

    def code(self, actions: Tensor) -> Tensor:
        """Return a number whose bits say which dimensions are in the upper half of their range."""
        upper = (actions > self.scale(actions.device)[0])[:, :MOST_BITS]
        return (upper * 2 ** torch.arange(upper.shape[-1], device=actions.device)).sum(-1)

    def metrics(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return the mean std of the Gaussians."""
        return {"policy_std": outputs.chunk(2, -1)[1].exp().mean()}

    def scale(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the middle and half the range of each dimension, [D].

        Where a bound is missing, half the range is 1, and the middle is the number nearest to 0
        that is as far as this within the other bound.
        """
        return _bounds(self, device)[2:]


@functools.cache
def _bounds(space: Box, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return low, high, middle and half range, each [D]; kept, as CUDA graphs read them again."""
    low, high = torch.tensor([space.low, space.high], device=device).unbind()
    bounded = (high - low).isfinite()
    nearest_zero = torch.zeros_like(low).clamp(low + 1, high - 1)
    middle = torch.where(bounded, (low + high) / 2, nearest_zero)
    return low, high, middle, torch.where(bounded, (high - low) / 2, 1.0)


def _log_density(actions: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log N(a; mean, std^2 I) = -1/2 sum(((a - mean) / std)^2 + 2 log std + log 2 pi)."""
    standardised = (actions - mean) * (-log_std).exp()
    return -0.5 * (standardised.square() + 2 * log_std + LOG_2PI).sum(-1)


NumActions = int | ActionSpace
"""The number of discrete actions, or any other space of them."""


def action_space(actions: Any) -> ActionSpace:
    """Return the space of a number of discrete actions, of a Gymnasium space, or of itself.

    Args:
        actions: an int, an `ActionSpace`, or Gymnasium's Discrete, MultiDiscrete, MultiBinary or
            Box. Choices are counted from 0, whatever Gymnasium's `start` says.

    Raises:
        ConfigError: for a space of another kind, or without actions.
    """
    if isinstance(actions, ActionSpace):
        return actions
    if isinstance(actions, Integral):
        if actions < 1:
            raise ConfigError(f"num_actions={actions}: must be 1 or more")
        return Choices((int(actions),), single=True)
    import gymnasium.spaces as spaces
    import numpy as np

    shown = f"actions are {' '.join(str(actions).split())}"
    if 0 in (getattr(actions, "shape", None) or ()):
        raise ConfigError(f"{shown}, without a number to choose; give a space that holds one")
    if isinstance(actions, spaces.Discrete):
        return Choices((int(actions.n),), single=True)
    if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1:
        return Choices(tuple(actions.nvec.tolist()))
    if isinstance(actions, spaces.MultiBinary) and len(actions.shape) == 1:
        return Choices((2,) * actions.shape[0])
    if isinstance(actions, spaces.Box) and np.issubdtype(actions.dtype, np.floating):
        if (actions.low >= actions.high).any():
            raise ConfigError(
                f"{shown}; bounds that are equal leave no choice, so let the environment set that "
                "number itself"
            )
        return Box(tuple(actions.low.ravel().tolist()), tuple(actions.high.ravel().tolist()))
    raise ConfigError(
        f"{shown}; ssedb takes Discrete, MultiDiscrete or MultiBinary of one dimension, and Box of "
        "floats"
    )


def to_data(space: ActionSpace) -> dict[str, Any]:
    """Return a space as a checkpoint holds it."""
    return asdict(space)  # type: ignore[call-overload]


def from_data(data: dict[str, Any]) -> ActionSpace:
    """Return the space that `to_data` was given."""
    return Choices(**data) if "sizes" in data else Box(**data)
