"""Episodes of other people's environments: their numbers, and the steps that only reset."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssedb.errors import ConfigError
from ssedb.integrations.samples import Samples, require_envs


class EpisodeNumbers:
    """Numbers of the episodes under way: no two episodes have the same one.

    Environment i begins with episode i. Where an episode ends, the next one has a number higher by
    the number of environments.
    """

    def __init__(self, device: torch.device, fixed: bool) -> None:
        """Begin before the first step.

        Args:
            device: where the numbers are wanted.
            fixed: whether the number of environments may change only after a reset of all.
        """
        self._device = device
        self._fixed = fixed
        self._under_way: Tensor | None = None  # int64 [N]; None before the first step
        self._unused = 0  # the first number of the environments' first episodes

    def first(self, envs: int) -> Tensor:
        """Return the episodes that the next rollout begins in, int64 [envs].

        Raises:
            ConfigError: if the number of environments is fixed and another.
        """
        under_way = self._under_way
        if under_way is None:
            return self._unused + torch.arange(envs, device=self._device)
        if envs == len(under_way):
            return under_way
        if self._fixed:
            raise ConfigError(
                f"samples of {envs} environments, after {len(under_way)}; this bonus keeps "
                "something of every episode, so call begin_episodes() if all were reset, or make "
                "another reward for them"
            )
        return under_way.max() + 1 + torch.arange(envs, device=self._device)

    def advance(self, rollout: Samples) -> None:
        """Number the episodes that begin within a rollout."""
        envs = rollout.size[1]
        self._under_way = self.first(envs) + envs * rollout.dones.sum(0)

    def begin(self, which: Tensor | None) -> None:
        """Begin new episodes in environments, bool [N], or in all, which may then be others."""
        if self._under_way is None:
            return
        if which is not None:
            require_envs(which, len(self._under_way))
            self._under_way = self._under_way + len(self._under_way) * which
        else:
            self._unused = int(self._under_way.max()) + 1
            self._under_way = None

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        return {"under_way": self._under_way, "unused": self._unused}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the numbers, from any device."""
        self._under_way = _on(state["under_way"], self._device)
        self._unused = state["unused"]


class ResetSteps:
    """Steps in which environments only reset: with `NEXT_STEP`, those after an episode's last."""

    def __init__(self, device: torch.device, next_step: bool | None) -> None:
        """Begin before the first step.

        Args:
            device: where the steps are.
            next_step: whether there are such steps; None if only a state to load tells.
        """
        self._device = device
        self._next_step = next_step
        self._ended: Tensor | None = None  # bool [N], whether the step before was an episode's last

    def acting_steps(self, dones: Tensor) -> Tensor:
        """Return in which of the next steps environments act, bool [T, N].

        Args:
            dones: bool [T, N], whether an episode ended in those steps.
        """
        if not self._next_step:
            return torch.ones_like(dones)
        ended = self._ended
        if ended is None or len(ended) != dones.shape[1]:  # other environments have just begun
            ended = torch.zeros_like(dones[0])
        return ~torch.cat([ended[None], dones[:-1]])

    def advance(self, dones: Tensor) -> None:
        """Go on by steps with episode ends `dones`, bool [T, N]."""
        self._ended = dones[-1].clone()

    def begin(self, which: Tensor | None) -> None:
        """Expect no step that only resets: environments, bool [N], or all, were reset by hand."""
        self._ended = None if which is None or self._ended is None else self._ended & ~which

    def state_dict(self) -> dict[str, Any]:
        """Return where episodes have just ended, and whether steps that only reset follow."""
        return {"ended": self._ended, "next_step": self._next_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load where episodes have just ended, from any device."""
        self._ended = _on(state["ended"], self._device)
        if self._next_step is None:
            self._next_step = state.get("next_step")


def _on(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
