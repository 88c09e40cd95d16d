"""Settings of an `IntrinsicReward`, apart from those of its bonus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from ssedb.config import SEEDS
from ssedb.options import Fidelity, Preset
from ssedb.validate import Fraction, PositiveFloat, PositiveInt, convert


@dataclass
class Settings:
    """Types and limits, as `TrainConfig` has them; `IntrinsicReward` says what they mean."""

    bonus: str
    fidelity: Fidelity
    preset: Preset
    device: str
    precision: Literal["bf16", "tf32", "fp32"]
    learning_rate: PositiveFloat
    adam_eps: PositiveFloat
    epochs: PositiveInt
    batch_size: PositiveInt
    share: Annotated[float, Gt(0), Le(1)]
    gamma: Fraction
    reward_scale: Literal["run", "recent", "none"] | None
    fit_obs: bool
    rgb: bool | None
    obs_key: str | None
    seed: Annotated[int, Ge(0), Lt(SEEDS)]


@dataclass
class Arguments:
    """Types and limits of what wrappers, the callback and the transform are given as well."""

    intrinsic_coef: float
    extrinsic_coef: float
    add_to: Literal["info", "reward"]
    update_every: PositiveInt
    scale_every: PositiveInt


def argument(name: str, value: Any) -> Any:
    """Return the value of one of `Arguments`; raise ConfigError for a value that it cannot have."""
    return convert(Arguments, {name: value})[name]
