"""A noise as the checks see it: frames and actions before and after it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ssedb.engine.host import pick_device
from ssedb.envs.base import Env, Step
from ssedb.noises import noise_class
from ssedb.noises.base import Noise

ENVS, ACTIONS, STEPS = 6, 5, 4

SHAPES = {"gray": (84, 84), "colour": (210, 160, 3)}

VECTORS = {"vector": (6,)}

Trace = dict[str, list[Tensor]]


class NoiseSubject:
    """A noise by its name, or as `package.module:Class`."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.name, self.device, self.cls = name, pick_device(device), noise_class(name)
        self.variant = ""  # under check, where the noise has several

    @property
    def usual(self) -> str:
        """Kind of frames that every noise of this class gets."""
        return "gray" if self.cls.disturbs == "images" else "vector"

    def kinds(self, noise: Noise) -> tuple[str, ...]:
        """Return the kinds of frames that the noise gets; `raw` alone gets colour."""
        return (self.usual, "colour") if self.usual == "gray" and noise.raw else (self.usual,)

    def variants(self, strength: float = 1.0) -> Iterator[Noise]:
        """Yield the noise in each of its variants."""
        for variant in self.cls.variants or ("",):
            self.variant = variant if len(self.cls.variants) > 1 else ""
            yield self.cls(strength, variant)
        self.variant = ""

    def generator(self, seed: int) -> torch.Generator:
        """Return a new generator on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def frames(self, kind: str, count: int = ENVS) -> Tensor:
        """Return the same frame for all environments: a vector, or an image, a quarter black."""
        if kind in VECTORS:
            vector = torch.randn(VECTORS[kind], generator=torch.Generator().manual_seed(0))
            return vector.to(self.device).expand(count, -1).clone()
        frame = torch.randint(256, SHAPES[kind], generator=torch.Generator().manual_seed(0))
        frame[: len(frame) // 2, : frame.shape[1] // 2] = 0
        return frame.to(torch.uint8).to(self.device).expand(count, *frame.shape).clone()

    def trace(self, noise: Noise, kind: str, seed: int = 0, odd_row: bool = False) -> Trace:
        """Return what a few steps give: actions, frames, masks where there are any, and memory.

        With `odd_row`, the first environment sees and does something else than it otherwise would.
        """
        generator, inputs = self.generator(seed), torch.Generator().manual_seed(1)
        memory = noise.begin(ENVS, ACTIONS, generator)
        trace: Trace = {"actions": [], "replaced": [], "frames": [], "mask": [], "memory": []}
        for _ in range(STEPS):
            actions = torch.randint(ACTIONS, (ENVS,), generator=inputs).to(self.device)
            dones = (torch.rand(ENVS, generator=inputs) < 0.3).to(self.device)
            frames = self.frames(kind)
            if odd_row:
                actions[0], dones[0] = (actions[0] + 1) % ACTIONS, ~dones[0]
                frames[0] = (255 if kind in SHAPES else 1) - frames[0]
            executed, replaced = noise.disturb_actions(actions, memory, generator)
            memory = noise.advance(memory, executed, dones, generator)
            noisy, mask = noise.disturb_frames(frames, memory, generator, want_mask=True)
            trace["actions"] += [actions, executed]
            trace["replaced"] += [replaced] if replaced is not None else []
            trace["frames"] += [widened(frames, noisy), noisy]
            trace["mask"] += [mask] if mask is not None else []
            trace["memory"] += list(memory.values())
        return trace


def before_and_after(trace: Trace, name: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield actions or frames before and after the noise."""
    return zip(trace[name][::2], trace[name][1::2], strict=True)


def widened(frames: Tensor, noisy: Tensor) -> Tensor:
    """Return frames with zeros where a noise has appended dimensions to vectors."""
    appended = noisy.shape[-1] - frames.shape[-1] if noisy.ndim == frames.ndim == 2 else 0
    return torch.nn.functional.pad(frames, (0, max(appended, 0)))


class Points(Env):
    """N points in space, one dimension of which an action moves."""

    num_actions = ACTIONS
    vectors = True
    restorable = True

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.num_envs = num_envs
        self.device = device
        self.places = torch.zeros(num_envs, ACTIONS, device=device)

    def reset(self) -> Tensor:
        """Return to the origin."""
        self.places.zero_()
        return self.places.clone()

    def step(self, actions: Tensor) -> Step:
        """Move by 1."""
        self.places[torch.arange(self.num_envs, device=self.device), actions] += 1
        nothing = torch.zeros(self.num_envs, device=self.device)
        return Step(self.places.clone(), nothing, nothing > 0)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the places."""
        return {"places": self.places.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the places."""
        self.places.copy_(state["places"])
