"""Small environments with a known answer, as fast as tensors are."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from ssedb.config import TrainConfig
from ssedb.envs.base import Env, Step
from ssedb.runs import checkpoint

SIDE = 36
TINY_OPTIONS = dict(channels=(16, 16, 16), state_dim=64, hidden_dim=64, latent_dim=32)
TINY = [
    "--preset", "small", "--device", "cpu", "--num-envs", "4", "--minibatch-envs", "2",
    "--rollout-steps", "16", "--obs-norm-steps", "32",
]  # fmt: skip
"""Flags of a run of seconds."""
ROOMS_FLAGS = [
    "--env", "rooms-small", "--preset", "rooms", "--device", "cpu", "--num-envs", "4",
    "--minibatch-envs", "2", "--rollout-steps", "8", "--obs-norm-steps", "32", "--steps", "64",
]  # fmt: skip
"""Flags of two updates on Rooms."""


def tiny_config(out: Any, **changes: Any) -> TrainConfig:
    """Return the settings of a run of a second; an emulator takes a quarter of one to start."""
    settings: dict[str, Any] = dict(
        env="rooms-tiny", preset="small", steps=1024, num_envs=8, rollout_steps=32,
        minibatch_envs=4, out=out, policy_channels=(8, 8, 8), policy_width=32, device="cpu",
        bonus_options=TINY_OPTIONS,
    )  # fmt: skip
    return TrainConfig(**{**settings, **changes})


def change_settings(out: Path, **changes: Any) -> None:
    """Rewrite a saved run as if it had been made with other settings."""
    state, about = checkpoint.load_latest(out / "checkpoints")  # type: ignore[misc]
    about |= {"env": changes.get("env", about["env"]), "settings": about["settings"] | changes}
    checkpoint.save(out / "checkpoints", state, about)
    values = tomllib.loads((out / "config.toml").read_text())
    (out / "config.toml").write_text(tomli_w.dumps({**values, **changes}))


class ToyEnv(Env):
    """A base of toy environments: a state tensor, a generator, a length, exact restoring."""

    def __init__(self, num_envs: int = 8, seed: int = 0, episode: int = 20) -> None:
        self.num_envs, self.device, self.episode = num_envs, torch.device("cpu"), episode
        self.generator = torch.Generator().manual_seed(seed)
        self.age = torch.zeros(num_envs, dtype=torch.int64)

    @property
    def restorable(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self.state.clone(),
            "age": self.age.clone(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.age = state["state"].clone(), state["age"].clone()
        self.generator.set_state(state["generator"])

    def reset(self) -> Tensor:
        self.state = self.draw()
        self.age.zero_()
        return self.frames()

    def step(self, actions: Tensor) -> Step:
        rewards = self.act(actions)
        self.age += 1
        dones = self.age >= self.episode
        last = self.frames() if dones.any() else None
        self.age[dones] = 0
        fresh = self.draw()
        self.state = torch.where(dones.view(-1, *[1] * (self.state.ndim - 1)), fresh, self.state)
        return Step(self.frames(), rewards, dones, None if last is None else lambda: last)


class Sides(ToyEnv):
    """One half of the picture is bright; the action that names the half earns 1, chance 0.5."""

    num_actions = 2

    def draw(self) -> Tensor:
        return torch.randint(2, (self.num_envs,), generator=self.generator)

    def frames(self) -> Tensor:
        columns = torch.arange(SIDE) * 2 // SIDE
        return (200 * (columns == self.state[:, None])).to(torch.uint8)[:, None].repeat(1, SIDE, 1)

    def act(self, actions: Tensor) -> Tensor:
        rewards = (actions == self.state).float()
        self.state = self.draw()
        return rewards


class Grid(ToyEnv):
    """A bright square walks over a 6x6 board, in the direction of the action, round the edges."""

    num_actions = 4
    cells = 6

    def draw(self) -> Tensor:
        return torch.randint(self.cells, (self.num_envs, 2), generator=self.generator)

    def frames(self) -> Tensor:
        cell = torch.arange(SIDE) * self.cells // SIDE
        rows, columns = cell == self.state[:, :1], cell == self.state[:, 1:]
        return (200 * (rows[:, :, None] & columns[:, None, :])).to(torch.uint8)

    def act(self, actions: Tensor) -> Tensor:
        moves = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]])
        self.state = (self.state + moves[actions]) % self.cells
        return torch.zeros(self.num_envs)


def transitions(env: ToyEnv, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """(obs, actions, next_obs) of a random agent, stacks of 4, episode ends left out."""
    from ssedb.collect.collector import Collector

    def act(obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        unused = torch.zeros(env.num_envs)
        return (
            torch.randint(env.num_actions, (env.num_envs,), generator=env.generator),
            unused,
            unused,
        )

    rollout = Collector(env, steps).collect(act)
    t, n = rollout.indices(torch.arange(env.num_envs))
    inside = ~rollout.dones[t, n]
    return rollout.transitions(t[inside], n[inside])
