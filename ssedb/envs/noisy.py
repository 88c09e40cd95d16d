"""An environment seen through noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ssedb.envs import noise as noises
from ssedb.envs.base import Env, Step
from ssedb.envs.frames import SIDE, to_agent_frames


class Observer:
    """Lays one kind of noise on frames and shrinks them to the agent's. It owns its randomness and what it remembers.

    Two observers with other seeds make twins: the same true states drawn with different noise.
    """

    MEMORY = ("previous", "screen", "clouds")

    def __init__(
        self,
        num_envs: int,
        num_actions: int,
        noise: str = "none",
        *,
        strength: float = 1.0,
        pixel: Literal["add", "zeros"] = "add",
        box: Literal["fill", "wrap"] = "fill",
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_envs, self.button, self.device = num_envs, num_actions - 1, torch.device(device)
        self.noise, self.strength, self.pixel, self.box = noise, strength, pixel, box
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.previous = torch.full((num_envs,), -1, device=self.device)
        self.screen = torch.zeros(
            num_envs, *[SIDE // noises.TV_SHARE] * 2, dtype=torch.uint8, device=self.device
        )
        self.clouds = torch.zeros(num_envs, noises.CLOUDS, 2, device=self.device)
        self.begin()

    def begin(self) -> None:
        """Forgets; new clouds gather, the TV shows another noise."""
        self.previous.fill_(-1)
        if self.noise == "noisy-tv":
            self.screen.copy_(noises.tune_tv(self.screen, self.previous < 0, self.generator))
        elif self.noise == "clouds":
            self.clouds.copy_(
                torch.rand(self.clouds.shape, generator=self.generator, device=self.device)
            )

    def disturb(self, actions: Tensor) -> Tensor:
        """The actions that are executed when these are chosen."""
        if self.noise != "sticky":
            return actions
        return noises.sticky_actions(actions, self.previous, self.strength, self.generator)[0]

    def advance(self, actions: Tensor, dones: Tensor) -> None:
        """A step has been made: the agent may have pressed the TV's button (the last action), and clouds drift."""
        if self.noise == "sticky":
            self.previous.copy_(torch.where(dones, -1, actions))
        elif self.noise == "noisy-tv":
            self.screen.copy_(noises.tune_tv(self.screen, actions == self.button, self.generator))
        elif self.noise == "clouds":
            self.clouds.copy_(noises.drift_clouds(self.clouds, self.generator))

    @staticmethod
    def wants_raw(noise: str, pixel: str, box: str) -> bool:
        """Whether the noise goes onto the raw frame, before it is shrunk."""
        return (noise, box) == ("random-box", "wrap") or (noise, pixel) == ("pixel", "zeros")

    def observe(self, frames: Tensor) -> Tensor:
        """Source frames as the agent sees them."""
        if not self.wants_raw(self.noise, self.pixel, self.box):
            frames = to_agent_frames(frames)
        if self.noise == "random-box":
            frames, _ = noises.random_boxes(frames, self.strength, self.generator, self.box)
        elif self.noise == "pixel":
            frames, _ = noises.pixel_noise(frames, self.strength, self.generator, self.pixel)
        elif self.noise == "flicker":
            frames, _ = noises.flicker(frames, self.strength, self.generator)
        elif self.noise == "noisy-tv":
            frames, _ = noises.show_tv(frames, self.screen, self.strength)
        elif self.noise == "clouds":
            frames, _ = noises.show_clouds(frames, self.clouds, self.strength)
        return to_agent_frames(frames)

    def state_dict(self) -> dict[str, Any]:
        memory = {name: getattr(self, name).clone() for name in self.MEMORY}
        return {**memory, "device": self.device.type, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any], episodes_go_on: bool = True) -> None:
        """Takes over the randomness (another kind of device has another, so there it begins anew) and the memory."""
        if state["device"] == self.device.type:
            self.generator.set_state(state["generator"].cpu())
        if not episodes_go_on:
            return
        for name in self.MEMORY:
            getattr(self, name).copy_(state[name])


class NoisyEnv(Env):
    """An environment behind an observer."""

    def __init__(self, env: Env, noise: str = "none", **settings: Any) -> None:
        self.env = env
        self.num_envs, self.num_actions, self.device = env.num_envs, env.num_actions, env.device
        self.on_host = env.on_host
        self.observer = Observer(
            env.num_envs, env.num_actions, noise, device=env.device, **settings
        )
        self.generators = [] if noise == "none" else [self.observer.generator]

    def reset(self) -> Tensor:
        self.observer.begin()
        return self.observer.observe(self.env.reset())

    def step(self, actions: Tensor) -> Step:
        actions = torch.as_tensor(actions, device=self.device)  # lists and arrays will do
        executed, observe = self.observer.disturb(actions), self.observer.observe
        step = self.env.step(executed)
        self.observer.advance(executed, step.dones)
        last = step.final_frames
        return Step(
            observe(step.frames),
            step.rewards,
            step.dones,
            None if last is None else lambda: observe(last()),
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
        return {"env": self.env.state_dict(), "observer": self.observer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.observer.load_state_dict(state["observer"], episodes_go_on=self.restorable)

    def close(self) -> None:
        self.env.close()
