"""Settings of a run: a frozen dataclass, checked when it is built. Imports no torch."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import tyro
from annotated_types import Ge, Gt, Le, Lt, MinLen

from ssedb.envs.names import canonical_env, dropped_sticky_actions, require_env_kwargs
from ssedb.errors import ConfigError, Note
from ssedb.noises import given_variant, label_of, require_noise
from ssedb.options import BY_NAME, Fidelity, Preset, canonical_bonus, resolve_options
from ssedb.reading import Damaged, read_table
from ssedb.validate import (
    Channels,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    convert,
    plain,
    require,
)

SEEDS = 2**32
"""Number of seeds; torch would take a larger one for a smaller one."""
MOST_THREADS = 1024
"""Limit of torch's threads; OpenMP crashes on tens of thousands."""
EMULATOR_MOST = 10**8
"""Limit of what emulators count, in 32 bits."""
EmulatorInt = Annotated[int, Gt(0), Le(EMULATOR_MOST)]

FIDELITIES: dict[str, dict[str, Any]] = {
    "paper": dict(
        bonus="db",
        entropy_coef=0.001,
        adam_eps=1e-7,
        policy_layers=("relu", "relu"),
        reward_scale="run",
        bonus_epochs=1,
        mask_boundaries=True,
    ),
    "released": dict(
        bonus="db",
        entropy_coef=0.001,
        adam_eps=1e-8,
        policy_layers=("linear", "relu", "relu"),
        reward_scale="run",
        bonus_epochs=3,
        mask_boundaries=False,
    ),
}
FIDELITIES["ours"] = FIDELITIES["paper"] | dict(
    bonus="db-ensemble", entropy_coef=0.01, reward_scale="recent"
)

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
OURS: dict[str, dict[str, Any]] = {
    "paper": dict(bonus_epochs=3, bonus_learning_rate=3e-4),
    "small": dict(ppo_epochs=6, bonus_epochs=3, bonus_learning_rate=1e-3),
    "rooms": {},
}
"""Settings that `--fidelity ours` changes in each preset (docs/what-a-bonus-must-do.md)."""
OLD_VARIANTS = {
    "sticky": ("sticky", "step", "frame"),
    "pixel_noise": ("pixel", "add", "zeros"),
    "box_noise": ("random-box", "fill", "wrap"),
}
"""Settings of older versions: the noise whose variant each chose, and its two variants."""


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent that explores with no reward."""

    env: str = BY_NAME
    """An Atari game, rooms (-tiny, -small, -large), or a Gymnasium id (docs/environments.md)."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for gymnasium.make as KEY=VALUE: size=8 'mode="hard"'; not for Atari and rooms."""
    noise: str = "none"
    """What disturbs the agent: a name of `ssedb list noises`, or package.module:Class."""
    noise_strength: NonNegativeFloat = 1.0
    """Strength of the noise: 0 is none, 1 is the paper's, or for other noises the usual one."""
    noise_variant: str = ""
    """Variant of the noise, where it has several (docs/noises.md); by default the fidelity's."""
    bonus: str = BY_NAME
    """The intrinsic reward: a name of `ssedb list bonuses`, or package.module:Class."""
    bonus_options: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Settings of the bonus; on the command line each is a flag of its own."""
    steps: PositiveInt = 100_000_000
    """Agent steps to train for (4 emulated frames each), rounded up to whole rollouts."""
    seed: Annotated[int, Ge(0), Lt(SEEDS)] = 0
    """Seed of everything that is random in the run."""
    out: Path = Path("runs/run")
    """Folder of the run; it must not hold another run."""
    preset: Preset = "paper"
    """Sizes and rates: the paper's, for a laptop, or for Rooms in minutes (docs/rooms.md)."""
    fidelity: Fidelity = "paper"
    """Settings of the paper, its released code, or the recipe we recommend (docs/fidelity.md)."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda or cuda:N."""
    engine: Literal["auto", "eager", "fast"] = "auto"
    """On a GPU, fast and auto replay CUDA graphs and update the bonus while emulators step."""
    precision: Literal["bf16", "tf32", "fp32"] = "bf16"
    """Precision of networks on a GPU; bf16 only for convolutions. Losses are always float32."""
    deterministic: bool = False
    """On a GPU, repeat and resume bit for bit, by eager steps and slower kernels."""

    num_envs: EmulatorInt = BY_NAME
    """Environments stepped in parallel."""
    env_workers: NonNegativeInt | Literal["auto"] = "auto"
    """Processes that step Gymnasium environments; 0: the learner's own; auto: the faster choice."""
    threads: Annotated[int, Gt(0), Le(MOST_THREADS)] | Literal["auto"] = "auto"
    """Torch's threads on the CPU; the last digits depend on them, so a resume keeps the number."""
    rollout_steps: EmulatorInt = BY_NAME
    """Steps of each environment between two updates."""
    minibatch_envs: PositiveInt = BY_NAME
    """Environments in a minibatch, each with its whole trajectory."""
    ppo_epochs: PositiveInt = BY_NAME
    """Passes of PPO over a rollout."""
    bonus_epochs: PositiveInt = BY_NAME
    """Passes of the bonus model over a rollout."""
    learning_rate: PositiveFloat = BY_NAME
    """Learning rate of the policy."""
    bonus_learning_rate: PositiveFloat = BY_NAME
    """Learning rate of the bonus model; by default the policy's."""
    adam_eps: PositiveFloat = BY_NAME
    """Adam's epsilon, against division by zero."""
    gamma: Fraction = 0.99
    """Discount of later rewards."""
    gae_lambda: Fraction = 0.95
    """Lambda of the advantage estimate."""
    clip: PositiveFloat = 0.1
    """Clip range of PPO: how far a probability ratio may go from 1."""
    entropy_coef: NonNegativeFloat = BY_NAME
    """Weight of the policy's entropy."""
    intrinsic_coef: NonNegativeFloat = 1.0
    """Weight of the normalised bonus in the policy's reward."""
    extrinsic_coef: NonNegativeFloat = 0.0
    """Weight of the environment's reward, clipped to -1..1; at 0 it is only recorded."""
    reward_scale: Literal["run", "recent", "none"] = BY_NAME
    """Divide the bonus by the std of its discounted sums over the run, recent rollouts, or not."""
    mask_boundaries: bool = BY_NAME
    """Leave transitions across an episode's end out of the bonus losses."""
    obs_norm_steps: PositiveInt = 10_000
    """Steps of a random agent that give the mean and std of observations."""
    policy_channels: Channels = BY_NAME
    """Filters of the policy's three convolutions."""
    policy_width: PositiveInt = BY_NAME
    """Units of each of the policy's dense layers."""
    policy_layers: Annotated[tuple[Literal["linear", "relu"], ...], MinLen(1)] = BY_NAME
    """Activation of each of the policy's dense layers."""
    max_episode_steps: EmulatorInt = 4500
    """Agent steps after which an episode is cut."""
    noop_max: Annotated[int, Ge(0), Le(EMULATOR_MOST)] = 30
    """Most no-ops (emulated frames) before an Atari episode; the number is drawn from 0 to this."""
    checkpoint_minutes: NonNegativeFloat = 5.0
    """Minutes between checkpoints; 0 saves after every iteration. The end is always saved."""
    wandb: bool = False
    """Send the metrics to Weights & Biases as well (needs `pip install 'ssedb[wandb]'`)."""

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        options = given.pop("bonus_options")
        names = convert(TrainConfig, {name: given[name] for name in ("preset", "fidelity")})
        implied = FIDELITIES[names["fidelity"]] | PRESETS[names["preset"]]
        if names["fidelity"] == "ours":
            implied |= OURS[names["preset"]]
        given |= {name: value for name, value in implied.items() if given[name] is BY_NAME}
        if given["bonus_learning_rate"] is BY_NAME:
            given["bonus_learning_rate"] = given["learning_rate"]
        self._set(convert(TrainConfig, given))
        self._require_names()
        self._require_whole_minibatches()
        self._set({"env": canonical_env(self.env), "bonus": canonical_bonus(self.bonus)})
        require(isinstance(options, Mapping), "bonus_options", repr(options), "must be a table")
        names |= {"env": self.env, "noise": self.noise}
        self._set({"bonus_options": resolve_options(self.bonus, options, **names)})

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _require_names(self) -> None:
        require_env_kwargs(self.env, self.env_kwargs)
        if note := dropped_sticky_actions(self.env, self.noise):
            warnings.warn(note, Note, stacklevel=4)
        known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None
        require(known, "device", repr(self.device), "use auto, cpu, cuda or cuda:N")
        both = self.deterministic and self.engine == "fast"
        require(not both, "engine", "'fast'", "--deterministic takes eager steps; use auto")
        require_noise(self.noise, self.noise_strength, self.noise_variant)
        given = given_variant(self.noise, self.noise_variant, self.fidelity)
        object.__setattr__(self, "noise_variant", given)  # two ways to say it are one setting

    @property
    def noise_label(self) -> str:
        """The noise for tables and figures."""
        return label_of(vars(self))

    def _require_whole_minibatches(self) -> None:
        if self.num_envs % self.minibatch_envs:
            below = self.num_envs - self.num_envs % self.minibatch_envs
            envs = [str(n) for n in (below, below + self.minibatch_envs) if n]
            splits = [n for n in range(1, self.num_envs + 1) if self.num_envs % n == 0]
            near = [str(n) for n in splits if n < self.minibatch_envs][-1:]
            near += [str(n) for n in splits if n > self.minibatch_envs][:1]
            raise ConfigError(
                f"num_envs={self.num_envs} does not split into minibatches of "
                f"{self.minibatch_envs} envs; set num_envs to {' or '.join(envs)}, "
                f"or minibatch_envs to {' or '.join(near)}"
            )

    @property
    def rollout_size(self) -> int:
        """Agent steps of a rollout, of all environments together."""
        return self.num_envs * self.rollout_steps

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as files keep them; a variant only where one was chosen."""
        values = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        if not self.noise_variant:
            del values["noise_variant"]
        return values

    def to_toml(self) -> str:
        """Return the text of config.toml. TOML has no null: `none_options` lists what is None."""
        values = self.to_dict()
        options = values["bonus_options"]
        if unset := [name for name, value in options.items() if value is None]:
            values["none_options"] = unset
        values["bonus_options"] = {k: v for k, v in options.items() if v is not None}
        return tomli_w.dumps(values)

    @classmethod
    def from_toml(cls, path: Path, **overrides: Any) -> TrainConfig:
        """Read the config.toml of a run, of an older version perhaps.

        Raises:
            ConfigError: if the file cannot be read, or has settings that this version does not.
        """
        try:
            values = migrated(read_table(path))
        except Damaged as error:
            raise ConfigError(
                f"{path.parent}: {error}; put back the file as the run wrote it"
            ) from None
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{path} has the unknown setting {unknown[0]!r}; "
                "it may be of another version of ssedb"
            )
        if "env" not in values:
            raise ConfigError(f"{path} names no env; put back the file as the run wrote it")
        try:
            return cls(**{**values, **overrides})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def bonus_of(settings: Mapping[str, Any]) -> Any:
    """Return the bonus that settings name, or that their fidelity implies.

    An unknown fidelity implies the paper's bonus here; `TrainConfig` refuses it.
    """
    fidelity = str(settings.get("fidelity"))
    return settings.get("bonus", FIDELITIES.get(fidelity, FIDELITIES["paper"])["bonus"])


def under_noise(config: TrainConfig, noise: str | None) -> TrainConfig:
    """Return settings with another noise of usual strength and variant, if one is named."""
    if noise in (None, config.noise):
        return config
    return dataclasses.replace(config, noise=noise, noise_strength=1.0, noise_variant="")


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a config.toml as this version names them.

    A setting that is newer than the file gets the value that it had in effect then.

    Raises:
        Damaged: the file has values that no version wrote.
    """
    values = dict(values)
    kinds = {"bonus": str, "bonus_options": dict, "none_options": list}
    for key, kind in {**kinds, **dict.fromkeys(OLD_VARIANTS, str)}.items():
        if not isinstance(values.get(key, kind()), kind):
            raise Damaged(f"config.toml has {key}={values[key]!r}, which no run writes")
    if unset := values.pop("none_options", ()):
        unset = dict.fromkeys(map(str, unset))
        values["bonus_options"] = values.get("bonus_options", {}) | unset
    if "normalize_bonus" in values:  # one reward scale, on or off
        values["reward_scale"] = "run" if values.pop("normalize_bonus") else "none"
    if "learning_rate" in values:  # one rate for policy and bonus model
        values.setdefault("bonus_learning_rate", values["learning_rate"])
    if values.get("bonus") == "re3" and "bonus_options" in values:  # only the mean, once
        values["bonus_options"] = {"distance": "mean", **values["bonus_options"]}
    features = {"icm": "inverse", "random-features": "random"}.get(values.get("bonus", ""))
    if features and "bonus_options" in values:  # two bonuses, once
        values["bonus_options"] = {"features": features} | values["bonus_options"]
    for key in OLD_VARIANTS.keys() & values:
        noise, *usual = OLD_VARIANTS[key]
        variant = values.pop(key)
        if values.get("noise") == noise and variant != usual[values.get("fidelity") == "released"]:
            values["noise_variant"] = variant
    return values


def toml_value(value: object) -> str:
    """Return a value as TOML, on one line."""
    in_array = tomli_w.dumps({"x": [value]}, indent=0)  # there a table is written inline
    return in_array.removeprefix("x = [\n").removesuffix(",\n]\n").replace("\n", " ")
