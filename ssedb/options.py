"""Settings of the bonuses, and their defaults by fidelity and preset. Imports no torch."""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge

from ssedb.envs.names import canonical_env
from ssedb.errors import ConfigError
from ssedb.noises import require_noise
from ssedb.validate import (
    Channels,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    convert,
    require,
    unknown_name,
)

Fidelity = Literal["paper", "released", "ours"]
Preset = Literal["paper", "small", "rooms"]

BY_NAME: Any = None
"""Default of a field whose value comes from the preset or the fidelity unless it is given."""

PAPER: dict[str, Any] = dict(
    bonus_root="sqrt",
    nce_input="mean",
    action_input="first",
    prediction_std="head",
    target_frames="stack",
    momentum_every="step",
)


@dataclass(frozen=True)
class DBOptions:
    """Settings of the Dynamic Bottleneck."""

    ablation: Literal["none", "no-upper", "no-pred", "no-nce", "no-nce-no-momentum"] = "none"
    """Leave out a term of DB's loss (and the momentum encoder), whatever the alphas are."""
    alpha1: NonNegativeFloat = BY_NAME
    """Weight of I_upper, the compression; by default chosen by game and noise."""
    alpha2: NonNegativeFloat = 0.1
    """Weight of I_pred, the prediction."""
    alpha3: NonNegativeFloat = BY_NAME
    """Weight of I_nce, the contrast; by default chosen by game and noise."""
    tau: Fraction = 0.999
    """Momentum of the target encoder and projection."""
    bonus_root: Literal["sqrt", "none"] = BY_NAME
    """For `db` alone: its bonus is the root of the KL divergence, or the divergence itself."""
    nce_input: Literal["mean", "sample"] = BY_NAME
    """Contrast the mean of the prediction, or a sample of it."""
    action_input: Literal["first", "every"] = BY_NAME
    """Give the action to the first layer of the posterior, or to every layer."""
    prediction_std: Literal["head", "scalar", "calibrated"] = BY_NAME
    """Std of the prediction: output of the head, one free scalar, or the batch's optimum."""
    target_frames: Literal["stack", "newest"] = BY_NAME
    """Target of the prediction: the whole next stack, or only its newest frame."""
    momentum_every: Literal["step", "epoch"] = BY_NAME
    """Update the momentum copies after each optimizer step, or after each epoch."""
    momentum_target: bool = True
    """Take targets from the momentum encoder; otherwise from the online one, with gradient."""
    channels: Channels = BY_NAME
    """Filters of the encoder's convolutions; for vectors, dense layers of 4 units per filter."""
    state_dim: PositiveInt = BY_NAME
    """Size of an encoded observation."""
    hidden_dim: PositiveInt = BY_NAME
    """Width of the posterior, of the first half of the prediction and of the projection."""
    latent_dim: PositiveInt = BY_NAME
    """Size of the representation z and of a projected state."""

    FIDELITIES: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": PAPER,
        "released": dict(
            bonus_root="none",
            nce_input="sample",
            action_input="every",
            prediction_std="scalar",
            target_frames="stack",
            momentum_every="epoch",
        ),
        "ours": {**PAPER, "prediction_std": "calibrated", "target_frames": "newest"},
    }
    ABLATIONS: ClassVar[dict[str, dict[str, Any]]] = {
        "none": {},
        "no-upper": dict(alpha1=0.0),
        "no-pred": dict(alpha2=0.0),
        "no-nce": dict(alpha3=0.0),
        "no-nce-no-momentum": dict(alpha3=0.0, momentum_target=False),
    }
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": dict(channels=(32, 64, 64), state_dim=512, hidden_dim=256, latent_dim=128),
        "small": dict(channels=(16, 32, 32), state_dim=256, hidden_dim=128, latent_dim=64),
        "rooms": dict(
            channels=(8, 16, 16),
            state_dim=128,
            hidden_dim=64,
            latent_dim=32,
            alpha1=0.001,
            alpha3=0.1,
        ),
    }

    def __post_init__(self) -> None:
        for name, value in self.ABLATIONS[self.ablation].items():
            object.__setattr__(self, name, value)

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        alphas = dict(zip(("alpha1", "alpha3"), released_alphas(env, noise), strict=True))
        return {**cls.FIDELITIES[fidelity], **alphas, **cls.PRESETS[preset]}


@dataclass(frozen=True)
class EnsembleOptions(DBOptions):
    """Settings of DB, and those of the ensemble."""

    models: Annotated[int, Ge(2)] = 5
    """Models that predict the next state from z."""
    model_dim: PositiveInt = 256
    """Width of a model's two hidden layers."""
    model_input: Literal["z", "direction"] = "z"
    """Models predict from z, scaled by running moments, or from the direction of that alone."""
    reward_by: Literal["online", "momentum"] = "online"
    """Weights that compute the reward: the trained ones, or their averages that move by tau."""
    memory: NonNegativeInt = 20_000
    """Transitions of the whole run on which the models are also trained, 35 KB each; 0: none."""

    # For every game and noise, chosen on Rooms.
    OURS: ClassVar[dict[str, Any]] = dict(alpha1=0.001, alpha3=0.1, tau=0.99)

    @classmethod
    def defaults(cls, fidelity: str, preset: str, env: str | None, noise: str) -> dict[str, Any]:
        """Return what the names imply; our weights are the same for every game and noise."""
        ours = cls.OURS if fidelity == "ours" else {}
        return super().defaults(fidelity, preset, env, noise) | ours


def released_alphas(game: str | None, noise: str) -> tuple[float, float]:
    """Return (alpha1, alpha3) of the released code for a game and a noise.

    A game that is not in its table gets the common row.
    """
    low_alpha1 = {"alien", "bank_heist", "beam_rider", "gopher"}
    high_alpha3 = {
        "alien", "bank_heist", "boxing", "breakout", "centipede", "crazy_climber", "kangaroo",
        "ms_pacman", "seaquest", "solaris", "wizard_of_wor",
    }  # fmt: skip
    rest = {
        "asteroids", "beam_rider", "chopper_command", "gopher", "gravitar", "kung_fu_master",
        "tennis", "time_pilot", "up_n_down", "video_pinball", "zaxxon",
    }  # fmt: skip
    if noise == "random-box":
        weak = {"crazy_climber", "kangaroo", "ms_pacman", "seaquest", "kung_fu_master", "up_n_down"}
        if game in weak or game not in high_alpha3 | rest:
            return 0.001, 0.01
    if noise == "sticky" and game == "crazy_climber":
        return 0.1, 0.01
    if noise == "sticky" and game in {"kangaroo", "kung_fu_master"}:
        return 0.001, 0.01
    if noise == "pixel" and game in {"crazy_climber", "kangaroo", "kung_fu_master", "ms_pacman"}:
        return 0.001, 0.01
    return (0.001 if game in low_alpha1 else 0.1), (0.1 if game in high_alpha3 else 0.01)


OPTIONS: dict[str, type[Any]] = {"db": DBOptions, "db-ensemble": EnsembleOptions}
"""Options that the command line shows without importing torch; others are in the bonus's file."""


def bonus_names() -> list[str]:
    """Return the names of all bonuses: the files of ssedb/bonuses.

    A folder that is added to `ssedb.bonuses.__path__` counts as well.
    """
    import ssedb.bonuses

    modules = (module.name for module in pkgutil.iter_modules(ssedb.bonuses.__path__))
    return sorted(name.replace("_", "-") for name in modules if name != "base")


def canonical_bonus(name: str) -> str:
    """Return the name of a bonus of this package with dashes; any other name stays as it is."""
    dashed = name.replace("_", "-")
    return dashed if dashed in bonus_names() else name


def options_class(bonus: str) -> type[Any]:
    """Return the frozen dataclass of a bonus's settings."""
    names = bonus_names()
    if ":" not in bonus and bonus not in names:
        raise ConfigError(f"bonus={bonus!r}: {unknown_name(bonus, names)}")
    if bonus in OPTIONS:
        return OPTIONS[bonus]
    from ssedb.bonuses import bonus_class

    options = bonus_class(bonus).Options
    own = vars(options)
    decorated = "__dataclass_fields__" in own or not own.get("__annotations__")
    if not (is_dataclass(options) and decorated and hasattr(options, "defaults")):
        raise ConfigError(
            f"bonus={bonus!r}: its Options must be a @dataclass(frozen=True) derived from "
            "ssedb.bonuses.base.BonusOptions"
        )
    return options


def resolve_options(
    bonus: str,
    given: Mapping[str, Any],
    *,
    fidelity: str = "paper",
    preset: str = "paper",
    env: str | None = None,
    noise: str = "none",
) -> dict[str, Any]:
    """Return all settings of a bonus: the given ones over the defaults.

    Args:
        bonus: name of the bonus.
        given: settings by name.
        fidelity: `paper`, `released` or `ours`.
        preset: `paper`, `small` or `rooms`.
        env: environment, which some defaults depend on.
        noise: noise, which some defaults depend on.
    """
    words = {"fidelity": get_args(Fidelity), "preset": get_args(Preset)}
    for name, value in (("fidelity", fidelity), ("preset", preset)):
        require(value in words[name], name, repr(value), f"use one of {', '.join(words[name])}")
    require_noise(noise)
    cls = options_class(bonus)
    known = [f.name for f in dataclasses.fields(cls)]
    for name in given:
        if name not in known:
            has = f"it has {', '.join(known)}"
            raise ConfigError(f"bonus {bonus!r} has no setting {name!r}; {has}")
    game = None if env is None else canonical_env(env)
    options = cls(**convert(cls, {**cls.defaults(fidelity, preset, game, noise), **given}))
    # Once more: the class's own defaults have not been converted yet.
    return convert(cls, {name: getattr(options, name) for name in known})
