"""What a run is made of: frozen dataclasses, validated when they are built. Imports no torch, so mistakes are cheap."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ssedb.envs.names import canonical_env, check_env_kwargs, dropped_sticky_actions
from ssedb.errors import ConfigError, Note
from ssedb.noises import check_noise
from ssedb.options import BY_NAME, Fidelity, Preset, canonical_bonus, resolve_options
from ssedb.validate import check_types, plain_table, require

FIDELITIES: dict[str, dict[str, Any]] = {
    "paper": dict(
        adam_eps=1e-7,
        policy_layers=("relu", "relu"),
        reward_scale="run",
        bonus_epochs=1,
        mask_boundaries=True,
        sticky="step",
        pixel_noise="add",
        box_noise="fill",
    ),
    "released": dict(
        adam_eps=1e-8,
        policy_layers=("linear", "relu", "relu"),
        reward_scale="run",
        bonus_epochs=3,
        mask_boundaries=False,
        sticky="frame",
        pixel_noise="zeros",
        box_noise="wrap",
    ),
}
FIDELITIES["ours"] = {**FIDELITIES["paper"], "reward_scale": "recent"}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": dict(
        env="alien",
        num_envs=128,
        rollout_steps=128,
        minibatch_envs=16,
        ppo_epochs=3,
        policy_channels=(32, 64, 64),
        policy_width=512,
        learning_rate=1e-4,
    ),
    "small": dict(
        env="alien",
        num_envs=16,
        rollout_steps=128,
        minibatch_envs=4,
        ppo_epochs=3,
        policy_channels=(16, 32, 32),
        policy_width=256,
        learning_rate=3e-4,
    ),
    "rooms": dict(
        env="rooms-small",
        num_envs=16,
        rollout_steps=64,
        minibatch_envs=4,
        ppo_epochs=2,
        bonus_epochs=8,
        policy_channels=(8, 16, 16),
        policy_width=64,
        learning_rate=1e-3,
    ),
}


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent that explores with no reward."""

    env: str = BY_NAME
    """An Atari game, rooms (-small, -large), or a Gymnasium id, where need be as module:Id (docs/environments.md)."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for gymnasium.make, as KEY=VALUE: size=8 'mode="hard"'; not for Atari games and rooms."""
    noise: str = "none"
    """What disturbs the agent: a name of `ssedb list noises`, or package.module:Class."""
    noise_strength: float = 1.0
    """Dial of the noise: 0 is none, 1 is the paper's."""
    bonus: str = "db"
    """The intrinsic reward; `ssedb list bonuses` shows the choices."""
    bonus_options: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Settings of the bonus; on the command line each is a flag of its own."""
    steps: int = 100_000_000
    """Agent steps to train for (4 emulated frames each), rounded up to whole rollouts."""
    seed: int = 0
    """Seed of everything that is random in the run."""
    out: Path = Path("runs/run")
    """Folder of the run; it must not hold another run."""
    preset: Preset = "paper"
    """Sizes and rates: the paper's, ones that fit a laptop, or ones that learn Rooms in minutes (docs/rooms.md)."""
    fidelity: Fidelity = "paper"
    """Whose side to take where the paper and its released code disagree (docs/fidelity.md)."""
    device: str = "auto"
    """Where to learn: auto, cpu, cuda or cuda:N."""
    engine: Literal["auto", "eager", "fast"] = "auto"
    """How to run on a GPU: fast replays CUDA graphs and learns while it plays, eager does not; auto is fast."""
    precision: Literal["bf16", "tf32", "fp32"] = "bf16"
    """On a GPU, of the networks; bf16 is for convolutions only. Losses and optimisers are in float32 in any case."""

    num_envs: int = BY_NAME
    """Environments stepped side by side."""
    env_workers: int | Literal["auto"] = "auto"
    """Processes that step Gymnasium environments; 0 steps them in the learner's own, auto measures what is faster."""
    rollout_steps: int = BY_NAME
    """Steps of each environment between two updates."""
    minibatch_envs: int = BY_NAME
    """Environments in a minibatch, each with its whole trajectory."""
    ppo_epochs: int = BY_NAME
    """Passes of PPO over a rollout."""
    bonus_epochs: int = BY_NAME
    """Passes of the bonus model over a rollout."""
    learning_rate: float = BY_NAME
    """Adam's rate for the policy."""
    bonus_learning_rate: float = BY_NAME
    """Adam's rate for the bonus model; the policy's unless given."""
    adam_eps: float = BY_NAME
    """Adam's epsilon, against division by zero."""
    gamma: float = 0.99
    """Discount of later rewards."""
    gae_lambda: float = 0.95
    """Lambda of the advantage estimate."""
    clip: float = 0.1
    """How far PPO lets a probability ratio go from 1."""
    entropy_coef: float = 0.001
    """Weight of the policy's entropy."""
    intrinsic_coef: float = 1.0
    """Weight of the normalised bonus in the reward that trains."""
    extrinsic_coef: float = 0.0
    """Weight of the game's own reward, clipped to -1..1; at 0 it is only measured."""
    reward_scale: Literal["run", "recent", "none"] = BY_NAME
    """Divide the bonus by the std of its discounted sums: over the whole run, over recent rollouts, or not at all."""
    mask_boundaries: bool = BY_NAME
    """Leave pairs across an episode's end out of the bonus losses."""
    obs_norm_steps: int = 10_000
    """Steps of a random agent from which the observations' mean and spread are taken."""
    policy_channels: tuple[int, int, int] = BY_NAME
    """Filters of the policy's three convolutions."""
    policy_width: int = BY_NAME
    """Units of each of the policy's dense layers."""
    policy_layers: tuple[Literal["linear", "relu"], ...] = BY_NAME
    """The policy's dense layers by their activation."""
    max_episode_steps: int = 4500
    """Agent steps after which an episode is cut."""
    noop_max: int = 30
    """At most so many no-ops (emulated frames) before an Atari episode begins: uniform, 0 among them."""
    sticky: Literal["step", "frame"] = BY_NAME
    """Sticky noise repeats an action for a whole agent step, or decides at every emulated frame (and drops the no-ops)."""
    pixel_noise: Literal["add", "zeros"] = BY_NAME
    """Pixel noise is added to every pixel, or replaces only those that are 0 in the raw frame."""
    box_noise: Literal["fill", "wrap"] = BY_NAME
    """Boxes are filled with noise, or have it added to the raw frame with wrap-around."""
    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints; 0 saves after every update, and there is always one at the end."""
    wandb: bool = False
    """Send the metrics to Weights & Biases as well (needs `pip install ssedb[wandb]`)."""

    def __post_init__(self) -> None:
        for name, table in (("preset", PRESETS), ("fidelity", FIDELITIES)):
            require(
                getattr(self, name) in table,
                name,
                repr(getattr(self, name)),
                f"use one of {', '.join(table)}",
            )
        defaults = {**FIDELITIES[self.fidelity], **PRESETS[self.preset]}
        for name, value in defaults.items():
            if getattr(self, name) is BY_NAME:
                object.__setattr__(self, name, value)
        if self.bonus_learning_rate is BY_NAME:
            object.__setattr__(self, "bonus_learning_rate", self.learning_rate)
        check_types(self)
        require(
            isinstance(self.bonus_options, Mapping),
            "bonus_options",
            self.bonus_options,
            "must be a table",
        )
        require(
            self.env_workers == "auto" or self.env_workers >= 0,
            "env_workers",
            self.env_workers,
            "must be 0 or more",
        )
        object.__setattr__(self, "env_kwargs", plain_table("env_kwargs", self.env_kwargs))
        check_env_kwargs(self.env, self.env_kwargs)
        if note := dropped_sticky_actions(self.env, self.noise):
            warnings.warn(note, Note, stacklevel=3)
        object.__setattr__(self, "env", canonical_env(self.env))
        object.__setattr__(self, "out", Path(self.out))
        object.__setattr__(self, "bonus", canonical_bonus(self.bonus))
        known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None
        require(known, "device", repr(self.device), "use auto, cpu, cuda or cuda:N")
        self._check_numbers()
        check_noise(self.noise, self.noise_strength)
        options = resolve_options(
            self.bonus,
            self.bonus_options,
            fidelity=self.fidelity,
            preset=self.preset,
            env=self.env,
            noise=self.noise,
        )
        object.__setattr__(self, "bonus_options", options)

    def _check_numbers(self) -> None:
        positive = [
            "steps",
            "num_envs",
            "rollout_steps",
            "minibatch_envs",
            "ppo_epochs",
            "bonus_epochs",
            "learning_rate",
        ]
        positive += [
            "bonus_learning_rate",
            "adam_eps",
            "clip",
            "obs_norm_steps",
            "policy_width",
            "max_episode_steps",
        ]
        for name in positive:
            value = getattr(self, name)
            require(value > 0, name, value, "must be above 0")
        for name in (
            "noise_strength",
            "seed",
            "noop_max",
            "entropy_coef",
            "intrinsic_coef",
            "extrinsic_coef",
            "checkpoint_minutes",
        ):
            value = getattr(self, name)
            require(value >= 0, name, value, "must be 0 or more")
        for name in (
            "num_envs",
            "rollout_steps",
            "max_episode_steps",
            "noop_max",
        ):  # emulators count in 32 bits
            require(
                getattr(self, name) <= 10**8,
                name,
                getattr(self, name),
                f"must be at most {10**8:,}",
            )
        require(
            self.seed < 2**32, "seed", self.seed, f"must be below {2**32}"
        )  # torch would take it for a smaller one
        for name in ("gamma", "gae_lambda"):
            value = getattr(self, name)
            require(0 <= value <= 1, name, value, "must lie between 0 and 1")
        if self.num_envs % self.minibatch_envs:
            below = self.num_envs - self.num_envs % self.minibatch_envs
            choices = [str(n) for n in (below, below + self.minibatch_envs) if n]
            raise ConfigError(
                f"num_envs={self.num_envs} does not split into minibatches of {self.minibatch_envs} envs; "
                f"use {' or '.join(choices)}"
            )

    @property
    def rollout_size(self) -> int:
        return self.num_envs * self.rollout_steps

    def to_toml(self) -> str:
        tables = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        last = {name: tables.pop(name) for name in ("env_kwargs", "bonus_options")}
        lines = [f"{name} = {toml_value(value)}" for name, value in tables.items()]
        for title, table in last.items():
            lines += ["", f"[{title}]"] + [
                f"{name} = {toml_value(value)}" for name, value in table.items()
            ]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path, **overrides: Any) -> TrainConfig:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(
                f"cannot read {path}: {error}; put back the file as the run wrote it"
            ) from None
        values = migrated(values)
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{path} has the unknown setting {unknown[0]!r}; it may be of another version of ssedb"
            )
        if "env" not in values:
            raise ConfigError(f"{path} names no env; put back the file as the run wrote it")
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        try:
            return cls(**{**settings, **overrides})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `config.toml` as this version names them; what was added since gets what it was then."""
    values = dict(values)
    if "normalize_bonus" in values:  # one reward scale, on or off
        values["reward_scale"] = "run" if values.pop("normalize_bonus") else "none"
    if "learning_rate" in values:  # one rate for policy and bonus model
        values.setdefault("bonus_learning_rate", values["learning_rate"])
    if (
        values.get("bonus") == "re3" and "bonus_options" in values
    ):  # the mean of the distances was the only choice
        values["bonus_options"] = {"distance": "mean", **values["bonus_options"]}
    return values


def toml_value(value: object) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(
            float(value) if isinstance(value, float) else value
        )  # NumPy's floats have a repr of their own
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(v)}" for key, v in value.items()) + "}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
