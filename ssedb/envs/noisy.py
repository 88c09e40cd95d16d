"""Environments behind noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ssedb.actions import NumActions
from ssedb.envs.base import Env, Step
from ssedb.envs.frames import SIDE, to_agent_frames
from ssedb.errors import Blamed, ConfigError
from ssedb.noises import noises_over
from ssedb.noises.base import Memory, Noise


class NoiseState:
    """A noise with its generator and memory; it disturbs actions and the frames of a source.

    Two of them with different seeds show the same true states under different noise.

    Attributes:
        noise: the noise.
        memory: of the noise; the tensors stay in their place.
        generator: the noise's only source of randomness.
    """

    def __init__(
        self,
        noise: Noise,
        num_envs: int,
        num_actions: NumActions,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        side: int = SIDE,
    ) -> None:
        self.noise = noise
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.device = torch.device(device)
        self.side = side
        self.generator = torch.Generator(self.device).manual_seed(seed)
        first = noise.begin(num_envs, num_actions, self.generator)
        self.memory: Memory = {name: rows.clone() for name, rows in first.items()}

    def begin(self) -> None:
        """Reset the memory: episodes begin everywhere."""
        self._remember(self.noise.begin(self.num_envs, self.num_actions, self.generator))

    def disturb_actions(self, actions: Tensor) -> Tensor:
        """Return the actions to execute, [N, ...], for those that the policy has chosen."""
        if not self.noise.changes_actions():
            return actions
        return self.noise.disturb_actions(actions, self.memory, self.generator)[0]

    def advance(self, actions: Tensor, dones: Tensor) -> None:
        """Advance the memory by a step with executed actions [N, ...] and dones [N]."""
        if self.memory:
            self._remember(self.noise.advance(self.memory, actions, dones, self.generator))

    def agent_frames(self, frames: Tensor) -> Tensor:
        """Return the agent's frames, uint8 [N, side, side] or vectors, for those of the source."""
        # A raw noise disturbs the source's frames, so they are converted after it. Any other
        # disturbs the agent's frames, which the second conversion leaves as they are.
        if not self.noise.raw:
            frames = to_agent_frames(frames, self.side)
        if self.noise.changes_frames():
            noisy, _ = self.noise.disturb_frames(frames, self.memory, self.generator)
            self._require_like(noisy, frames)
            frames = noisy
        return to_agent_frames(frames, self.side)

    def _require_like(self, noisy: Tensor, frames: Tensor) -> None:
        """Raise Blamed unless noisy frames are as the frames; vectors may get more dimensions."""
        alike = noisy.shape == frames.shape or (noisy.ndim == frames.ndim == 2)
        if len(noisy) != len(frames) or not alike or noisy.dtype != frames.dtype:
            raise Blamed(
                f"{type(self.noise).__name__}.disturb_frames gave frames of shape "
                f"{list(noisy.shape)} of {noisy.dtype}, not {list(frames.shape)} of {frames.dtype}",
                "",
            )

    def _remember(self, memory: Memory) -> None:
        for name, rows in self.memory.items():
            rows.copy_(memory[name])

    def state_dict(self) -> dict[str, Any]:
        return {
            "memory": {name: rows.clone() for name, rows in self.memory.items()},
            "device": self.device.type,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the memory and the random state.

        Another kind of device draws other numbers, so there the generator keeps its seed.
        """
        if state["device"] == self.device.type:
            self.generator.set_state(state["generator"].cpu())
        for name, rows in self.memory.items():
            rows.copy_(state["memory"][name])


def _require_kind(noise: Noise, env: Env) -> None:
    """Raise ConfigError for a noise on images over vectors, or the other way round."""
    seen: Literal["images", "vectors"] = "vectors" if env.vectors else "images"
    if not noise.fits(seen):
        raise ConfigError(
            f"{type(noise).__name__} disturbs {noise.disturbs}, and the environment observes "
            f"{seen}; use a noise that fits: {', '.join(noises_over(seen))}"
        )


class NoisyEnv(Env):
    """Environment whose frames and actions pass through a noise."""

    def __init__(self, env: Env, noise: Noise, *, seed: int = 0) -> None:
        _require_kind(noise, env)
        self.env = env
        self.num_envs, self.num_actions, self.device = env.num_envs, env.num_actions, env.device
        self.on_host = env.on_host
        self.side = env.side
        self.must_continue = env.must_continue
        self.vectors = env.vectors
        self.noise_state = NoiseState(
            noise,
            env.num_envs,
            env.num_actions,
            seed=seed,
            device=env.device,
            side=env.side,
        )
        self.capturable = env.capturable and noise.capturable
        draws = noise.changes_frames() or noise.changes_actions()
        self.generators = [*env.generators, *([self.noise_state.generator] if draws else [])]

    def reset(self) -> Tensor:
        self.noise_state.begin()
        return self.noise_state.agent_frames(self.env.reset())

    def step(self, actions: Tensor) -> Step:
        actions = torch.as_tensor(actions, device=self.device)  # lists and arrays will do
        noise_state, executed = self.noise_state, self.noise_state.disturb_actions(actions)
        step = self.env.step(executed)
        noise_state.advance(executed, step.dones)
        last = step.final_frames
        return Step(
            noise_state.agent_frames(step.frames),
            step.rewards,
            step.dones,
            None if last is None else lambda: noise_state.agent_frames(last()),
        )

    def stagger(self) -> None:
        self.env.stagger()

    def true_states(self) -> Tensor | None:
        return self.env.true_states()

    def merge(self, gather: Callable[[Tensor], Tensor]) -> None:
        self.env.merge(gather)

    def metrics(self) -> dict[str, float]:
        return self.env.metrics()

    @property
    def restorable(self) -> bool:
        return self.env.restorable

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "observer": self.noise_state.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "memory" not in state["observer"]:
            raise ValueError("it has no memory of the noise; another version of ssedb wrote it")
        self.env.load_state_dict(state["env"])
        self.noise_state.load_state_dict(state["observer"])

    def close(self) -> None:
        self.env.close()
