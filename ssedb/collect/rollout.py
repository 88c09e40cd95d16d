"""Storage of one rollout, [T, N] on the learner's device.

Every frame is kept once; stacks are made by indexing. Vectors are not stacked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ssedb.actions import NumActions, action_space
from ssedb.envs.base import Step

STACK = 4
ALL = slice(None)


class Rollout:
    """T steps of N environments, continued from one rollout to the next so that stacks run on.

    Frame t + 3 is the newest of observation t, so T + 4 frames hold the observations 0 to T.
    `starts[t]` is the index of the first frame of the episode that observation t is in: older
    frames are not looked at, the first stands in for them. A vector is a stack of one frame.
    """

    def __init__(
        self,
        steps: int,
        num_envs: int,
        frame_shape: tuple[int, ...],
        device: torch.device | str = "cpu",
        rank: int = 0,
        size: int = 1,
        num_actions: NumActions = 1,
    ) -> None:
        """Allocate for the environments of a process.

        Args:
            steps: T.
            num_envs: N of this process; the others have as many.
            frame_shape: [H, W] of images, uint8, or [D] of vectors, float32.
            device: where the learner is.
            rank: number of the process.
            size: number of processes.
            num_actions: the number of discrete actions, or the action space.
        """
        image = len(frame_shape) == 2
        self.stack = STACK if image else 1
        space = action_space(num_actions)
        self.steps = steps
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.rank = rank
        self.size = size
        kind = torch.uint8 if image else torch.float32
        length = steps + self.stack
        self.frames = torch.zeros(length, num_envs, *frame_shape, dtype=kind, device=device)
        self.starts = torch.zeros(steps + 1, num_envs, dtype=torch.int64, device=device)
        self.actions = torch.zeros(steps, num_envs, *space.shape, dtype=space.dtype, device=device)
        self.rewards = torch.zeros(steps, num_envs, device=device)
        self.dones = torch.zeros(steps, num_envs, dtype=torch.bool, device=device)
        self.log_probs = torch.zeros(steps, num_envs, device=device)
        self.values = torch.zeros(steps + 1, num_envs, device=device)
        # A number for each episode, unique over all processes.
        first = torch.arange(num_envs, device=device) + rank * num_envs
        self.episodes = first.repeat(steps + 1, 1)
        self.states: Tensor | None = None
        """True states acted in, int64 [T, N], where the environment tells them and someone asks."""
        self._envs = torch.arange(num_envs, device=device)
        self._times = torch.arange(steps + 1, device=device)[:, None].repeat(1, num_envs)
        self._offsets = torch.arange(self.stack, device=device)

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one observation: [4, H, W] of images, [D] of vectors."""
        frame_shape = tuple(self.frames.shape[2:])
        return (STACK, *frame_shape) if len(frame_shape) == 2 else frame_shape

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors; a rollout on torch's device `meta` takes none of them."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))

    def begin(self, frames: Tensor) -> None:
        """Make frames [N, ...] observation 0, and until steps are stored the last one, too."""
        for t in (0, self.steps):
            self.frames[t + self.stack - 1] = frames
            self.starts[t] = t + self.stack - 1

    def continue_from(self, before: Rollout) -> None:
        """Make the last observation of a rollout, another one or this, observation 0."""
        self.frames[: self.stack] = before.frames[self.steps :].clone()
        self.starts[0] = (before.starts[self.steps] - self.steps).clamp_min(0)
        self.episodes[0] = before.episodes[self.steps]

    def store_actions(
        self, t: Tensor, envs: Tensor, actions: Tensor, log_probs: Tensor, values: Tensor
    ) -> None:
        """Store what was done on the observations at times t [B] of envs [B]."""
        self.actions[t, envs] = actions
        self.log_probs[t, envs] = log_probs
        self.values[t, envs] = values

    def store_step(
        self, t: Tensor, envs: Tensor, frames: Tensor, rewards: Tensor, dones: Tensor
    ) -> None:
        """Store how the environments answered the actions at times t [B] of envs [B]."""
        self.rewards[t, envs] = rewards
        self.dones[t, envs] = dones
        self.frames[t + self.stack, envs] = frames
        self.starts[t + 1, envs] = torch.where(dones, t + self.stack, self.starts[t, envs])
        next_episodes = self.episodes[t, envs] + self.num_envs * self.size
        self.episodes[t + 1, envs] = torch.where(dones, next_episodes, self.episodes[t, envs])

    def advance(self, step: Step) -> None:
        """Store a step in a rollout of one step, and continue from there."""
        self.store_step(*self.at(0), step.frames, step.rewards, step.dones)
        self.continue_from(self)

    def whole(self, gather: Callable[[Tensor, int], Tensor]) -> Rollout:
        """Return the rollout of all processes, side by side.

        Args:
            gather: concatenates the tensors of all processes along a dimension.
        """
        whole = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.ndim > 1 and name != "_times":  # [T, N, ...]
                setattr(whole, name, gather(value, 1))
        whole.num_envs = self.num_envs * self.size
        whole._envs = torch.arange(whole.num_envs, device=self.device)
        whole._times = self._times.repeat(1, self.size)
        return whole

    def stacks(self, t: Tensor, envs: Tensor) -> Tensor:
        """Return the observations [B, *obs_shape] at times t [B] of envs [B]."""
        index = torch.maximum(t[:, None] + self._offsets, self.starts[t, envs][:, None])  # [B, 4]
        rows = (index * self.num_envs + envs[:, None]).flatten()
        flat = self.frames.view(-1, self.frames[0, 0].numel())  # [(T + 4) N, H W]: rows copy fast
        return flat.index_select(0, rows).view(len(t), *self.obs_shape)

    def obs(self, t: int) -> Tensor:
        """Return the observations of all environments at time t."""
        return self.stacks(*self.at(t))

    def transitions(self, t: Tensor, envs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (obs, actions, next_obs) at times t [B] of envs [B]."""
        return self.stacks(t, envs), self.actions[t, envs], self.stacks(t + 1, envs)

    def at(self, t: int, envs: slice = ALL) -> tuple[Tensor, Tensor]:
        """Return the indices (t, env) of all environments, or of some, at time t."""
        return self._times[t, envs], self._envs[envs]

    def minibatches(self, minibatch_envs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's share of minibatches, each all steps of a few environments.

        The order is random, and the same in all processes.

        Args:
            minibatch_envs: environments of a minibatch, over all processes.

        Yields:
            Indices (t, env), each [T * minibatch_envs / processes].
        """
        order = torch.randperm(self.num_envs)
        if self.device.type == "cuda":
            order = order.pin_memory()  # so that the host does not wait for the copy
        for envs in order.to(self.device, non_blocking=True).split(minibatch_envs):
            yield self.indices(envs[self.rank :: self.size])

    def groups(self, envs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the indices (t, env) of all steps, a number of environments at a time, in order."""
        for some in self._envs.split(envs):
            yield self.indices(some)

    def indices(self, envs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices (t, env) of all steps of these environments."""
        times = torch.arange(self.steps, device=self.device)
        return times.repeat_interleave(len(envs)), envs.repeat(self.steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the observation on which the next rollout begins."""
        last = {name: getattr(self, name)[self.steps].clone() for name in ("starts", "episodes")}
        return {"frames": self.frames[self.steps :].clone(), **last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the last observation of this process's environments from that of all."""
        own = self._own_envs()
        self.frames[self.steps :] = state["frames"][:, own].to(self.device)
        self.starts[self.steps] = state["starts"][own].to(self.device)
        self.episodes[self.steps] = state["episodes"][own].to(self.device)

    def number_episodes_after(self, episodes: Tensor) -> None:
        """Give new episodes the numbers that follow those [N of all processes] of earlier ones."""
        own = episodes[self._own_envs()].to(self.device)
        # Row 0 begins the next rollout; until then, a checkpoint holds the last one.
        self.episodes[[0, self.steps]] = own + self.num_envs * self.size

    def _own_envs(self) -> slice:
        return slice(self.rank * self.num_envs, (self.rank + 1) * self.num_envs)
