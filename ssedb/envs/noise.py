"""What fools curiosity: noise on frames and on actions, batched, each draw from a generator that the caller owns.

Every function is pure. Frame noises take uint8 frames [N, H, W] or [N, H, W, 3], leave them as they are, and return the
noisy frames; with `want_mask` also where they touched them (bool, shaped like the frames), else None. A strength of 0
changes nothing and 1 is the paper's. For each noise there are two readings, the paper's and the released code's.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ssedb.envs.base import Env, Step
from ssedb.envs.frames import to_agent_frames

GRID = (10, 8)
"""Rows and columns of cells that a box may fill."""
BOXES = (3, 12)
"""Fewest and most boxes at a time."""
BOX_STD = 76.5
PIXEL_STD = 80.0
STICKY_PROBABILITY = 0.25


def random_boxes(
    frames: Tensor,
    strength: float,
    generator: torch.Generator,
    reading: Literal["fill", "wrap"] = "fill",
    want_mask: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Noise in 3 to 12 cells of the grid, other cells each time: 20x20 pixels on a raw 210x160 frame, 8x10 on 84x84.

    `fill` blends a box over with N(127.5, 76.5), at strength 1 entirely; `wrap` adds N(0, 76.5) as uint8 arithmetic does.
    """
    n, height, width = frames.shape[:3]
    rows, columns = GRID
    box_h, box_w = height * 2 // 21, width // columns  # the lowest twentieth of the picture is never touched
    count = torch.randint(BOXES[0], BOXES[1] + 1, (n, 1), generator=generator, device=frames.device)
    cell = torch.rand(n, rows * columns, generator=generator, device=frames.device).argsort(1)[:, : BOXES[1]]
    used = torch.arange(BOXES[1], device=frames.device) < count  # [N, 12]
    env = torch.arange(n, device=frames.device)[:, None]
    place = (env, cell // columns, slice(None), cell % columns)

    def cells(images: Tensor) -> Tensor:  # a view [N, 10, box_h, 8, box_w, ...] of the part that the grid covers
        part = images[:, : rows * box_h, : columns * box_w]
        return part.unflatten(1, (rows, box_h)).unflatten(3, (columns, box_w))

    old = cells(frames)[place]  # [N, 12, box_h, box_w, ...]
    noise = torch.randn(old.shape, generator=generator, device=frames.device)
    if reading == "fill":
        new = (old + strength * (127.5 + BOX_STD * noise - old)).clamp_(0, 255)
    else:
        new = (old + (strength * BOX_STD * noise).trunc_()).remainder_(256)
    used = used.view(n, BOXES[1], *[1] * (old.ndim - 2))
    noisy = frames.clone()
    cells(noisy)[place] = torch.where(used, new.to(torch.uint8), old)
    if not want_mask:
        return noisy, None
    mask = torch.zeros_like(frames, dtype=torch.bool)
    cells(mask)[place] = used.expand(old.shape)
    return noisy, mask


def pixel_noise(
    frames: Tensor,
    strength: float,
    generator: torch.Generator,
    reading: Literal["add", "zeros"] = "add",
    want_mask: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`add` puts N(0, 80) on every pixel; `zeros` replaces the pixels that are exactly 0 by max(N(0, 80), 0)."""
    noise = torch.randn(frames.shape, generator=generator, device=frames.device).mul_(strength * PIXEL_STD)
    if reading == "add":
        mask = torch.ones_like(frames, dtype=torch.bool) if want_mask else None
        return noise.add_(frames).clamp_(0, 255).to(torch.uint8), mask
    zero = frames == 0
    return torch.where(zero, noise.clamp_(0, 255).to(torch.uint8), frames), zero if want_mask else None


def sticky_actions(actions: Tensor, previous: Tensor, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each action is replaced by the one executed before with probability 0.25; `previous` is -1 where there is none.

    Returns the actions to execute and where they were replaced.
    """
    draw = torch.rand(actions.shape, generator=generator, device=actions.device)
    stuck = (draw < strength * STICKY_PROBABILITY) & (previous >= 0)
    return torch.where(stuck, previous, actions), stuck


class NoisyEnv(Env):
    """An environment seen through noise, then shrunk to the agent's frame.

    A reading that speaks of raw pixels disturbs the frame before it is shrunk, one that speaks of observations after.
    """

    def __init__(
        self,
        env: Env,
        noise: str = "none",
        *,
        strength: float = 1.0,
        pixel: Literal["add", "zeros"] = "add",
        box: Literal["fill", "wrap"] = "fill",
        seed: int = 0,
    ) -> None:
        self.env, self.noise, self.strength, self.pixel, self.box = env, noise, strength, pixel, box
        self.num_envs, self.num_actions, self.device = env.num_envs, env.num_actions, env.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._previous = torch.full((env.num_envs,), -1, device=self.device)

    @staticmethod
    def wants_raw(noise: str, pixel: str, box: str) -> bool:
        """Whether the noise goes onto the raw frame, before it is shrunk."""
        return (noise, box) == ("random-box", "wrap") or (noise, pixel) == ("pixel", "zeros")

    def observe(self, frames: Tensor) -> Tensor:
        """Source frames as the agent sees them, with a fresh draw of the noise."""
        if not self.wants_raw(self.noise, self.pixel, self.box):
            frames = to_agent_frames(frames)
        if self.noise == "random-box":
            frames, _ = random_boxes(frames, self.strength, self.generator, self.box)
        elif self.noise == "pixel":
            frames, _ = pixel_noise(frames, self.strength, self.generator, self.pixel)
        return to_agent_frames(frames)

    def reset(self) -> Tensor:
        self._previous.fill_(-1)
        return self.observe(self.env.reset())

    def step(self, actions: Tensor) -> Step:
        if self.noise == "sticky":
            actions, _ = sticky_actions(actions, self._previous, self.strength, self.generator)
        step = self.env.step(actions)
        self._previous = torch.where(step.dones, -1, actions)
        final = None if step.final_frames is None else self.observe(step.final_frames)
        return Step(self.observe(step.frames), step.rewards, step.dones, final)

    @property
    def restorable(self) -> bool:
        return self.env.restorable

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "generator": self.generator.get_state(), "previous": self._previous}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env.load_state_dict(state["env"])
        self.generator.set_state(state["generator"].cpu())
        self._previous = state["previous"].to(self.device)

    def close(self) -> None:
        self.env.close()
