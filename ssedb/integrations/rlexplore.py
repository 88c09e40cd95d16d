"""RLeXplore's names: its classes, constructor keywords, samples and results, with our bonuses.

    from ssedb.integrations.rlexplore import ICM, RND, Disagreement, RE3, DB, E3B

`docs/rlexplore.md` lists what each keyword does here, and what is mended.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ssedb.errors import ConfigError, Note
from ssedb.integrations.modes import own_modes
from ssedb.integrations.reward import IntrinsicReward
from ssedb.integrations.samples import SampleDict, Samples
from ssedb.validate import Fraction, convert

RENAMED = {"learning_rate": "lr", "batch_size": "batch_size", "share": "update_proportion"}
"""RLeXplore's keywords by our settings."""
RENAMED_OPTIONS = {"feature_dim": "latent_dim", "neighbours": "k", "models": "ensemble_size"}
"""RLeXplore's keywords by our options of bonuses."""


@dataclass
class Weight:
    """Types and limits of the two keywords that we have no setting for."""

    beta: float
    kappa: Fraction


class Reward:
    """Base of the six: a bonus of ours behind RLeXplore's methods.

    Attributes:
        global_step: calls of `compute`, with which the weight decays.
        metrics: `loss`, a list of [global_step, mean loss].
        reward: the `IntrinsicReward` that does the work.
    """

    def __init__(self, bonus: str, given: dict[str, Any], **options: Any) -> None:
        """Make the bonus.

        Args:
            bonus: our name of it.
            given: RLeXplore's keywords and their values.
            options: settings of the bonus that follow from them.
        """
        rwd_norm_type = _one_of(given, "rwd_norm_type", "rms", "minmax", "none")
        obs_norm_type = _one_of(given, "obs_norm_type", "rms", "none")
        _one_of(given, "encoder_model", "mnih")
        weight_init = _one_of(given, "weight_init", "orthogonal", "default")
        if weight_init != "orthogonal":
            warnings.warn(Note(f"weight_init={weight_init!r} changes nothing here"), stacklevel=3)
        ours = {name: given[theirs] for name, theirs in RENAMED.items() if theirs in given}
        gamma = given["gamma"]
        weight = convert(Weight, {name: given[name] for name in ("beta", "kappa")})
        self.beta: float = weight["beta"]
        self.kappa: float = weight["kappa"]
        with _their_names():
            self.reward = IntrinsicReward(
                bonus,
                given["envs"],
                preset="paper",
                device=given["device"],
                epochs=1,
                # Without a discount the sums are the rewards themselves, and so is their std.
                gamma=0.0 if gamma is None else gamma,
                reward_scale="run" if rwd_norm_type == "rms" else "none",
                fit_obs=obs_norm_type == "rms",
                **ours,
                **options,
            )
        self.device = self.reward.device
        self.rwd_norm_type = rwd_norm_type
        self.batch_size = self.reward.batch_size
        self.global_step = 0
        self.metrics: dict[str, list[list[float]]] = {"loss": []}

    @property
    def weight(self) -> float:
        """The weight of the rewards, beta (1 - kappa) ** global_step."""
        return self.beta * (1 - self.kappa) ** self.global_step

    def watch(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminateds: Any,
        truncateds: Any,
        next_observations: Any,
    ) -> None:
        """Do nothing: `compute` is given all samples."""

    @own_modes()
    def compute(self, samples: SampleDict, sync: bool = True) -> Tensor:
        """Return the weighted rewards of samples, float32 [n_steps, n_envs].

        Args:
            samples: tensors [n_steps, n_envs, ...] by the six names.
            sync: whether to train on them, too. Memories and scales move either way.
        """
        rollout = self._rollout(samples)
        raw = self.reward.raw_rewards(rollout)
        self.reward.observe(rollout)
        rewards = self.reward.scale.add(raw)
        if self.rwd_norm_type == "minmax":
            low, high = rewards.aminmax()
            rewards = (rewards - low) / (high - low).clamp_min(1e-8)
        self.global_step += 1
        if sync:
            self._train(rollout)
        return self.weight * rewards

    @own_modes()
    def update(self, samples: SampleDict) -> None:
        """Train on samples of any number of environments, such as a batch of a replay buffer."""
        self._train(self._rollout(samples))

    def _rollout(self, samples: SampleDict) -> Samples:
        rollout = self.reward.samples(samples)
        self.reward.fit_observations(rollout.obs)
        return rollout

    def _train(self, rollout: Samples) -> None:
        means = self.reward.train(rollout).means(lambda own: own)
        self.metrics["loss"].append([self.global_step, means["bonus_loss"]])

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return {"reward": self.reward.state_dict(), "global_step": self.global_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of a reward with the same settings."""
        self.reward.load_state_dict(state.get("reward", {}))
        self.global_step = state["global_step"]


class ICM(Reward):
    """Intrinsic Curiosity Module."""

    def __init__(
        self,
        envs: Any,
        device: str = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: str = "rms",
        obs_norm_type: str = "none",
        latent_dim: int = 128,
        lr: float = 0.001,
        batch_size: int = 256,
        update_proportion: float = 1.0,
        encoder_model: str = "mnih",
        weight_init: str = "orthogonal",
    ) -> None:
        """Make an ICM."""
        super().__init__("icm", locals(), feature_dim=latent_dim)


class Latent(Reward):
    """Base of those with no size but `latent_dim`.

    Attributes:
        bonus: our name of the bonus.
        size: the option of the bonus that is `latent_dim`.
    """

    bonus: ClassVar[str]
    size: ClassVar[str] = "feature_dim"

    def __init__(
        self,
        envs: Any,
        device: str = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: str = "rms",
        obs_norm_type: str = "rms",
        latent_dim: int = 128,
        lr: float = 0.001,
        batch_size: int = 256,
        update_proportion: float = 1.0,
        encoder_model: str = "mnih",
        weight_init: str = "orthogonal",
    ) -> None:
        """Make the bonus."""
        super().__init__(self.bonus, locals(), **{self.size: latent_dim})


class RND(Latent):
    """Random Network Distillation."""

    bonus = "rnd"


class Disagreement(Reward):
    """Disagreement of an ensemble of forward models."""

    def __init__(
        self,
        envs: Any,
        device: str = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: str = "rms",
        obs_norm_type: str = "rms",
        ensemble_size: int = 4,
        latent_dim: int = 128,
        lr: float = 0.001,
        batch_size: int = 256,
        update_proportion: float = 1.0,
        encoder_model: str = "mnih",
        weight_init: str = "orthogonal",
    ) -> None:
        """Make an ensemble."""
        super().__init__("disagreement", locals(), models=ensemble_size, feature_dim=latent_dim)


class RE3(Reward):
    """State entropy by nearest neighbours in random features."""

    def __init__(
        self,
        envs: Any,
        device: str = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: str = "rms",
        obs_norm_type: str = "rms",
        latent_dim: int = 128,
        storage_size: int = 1000,
        k: int = 5,
        average_entropy: bool = False,
        encoder_model: str = "mnih",
        weight_init: str = "orthogonal",
    ) -> None:
        """Make an RE3; neighbours are those of the samples, so `storage_size` changes nothing."""
        super().__init__(
            "re3",
            locals(),
            feature_dim=latent_dim,
            neighbours=k,
            distance="mean" if average_entropy else "kth",
        )
        if storage_size != 1000:
            warnings.warn(Note(f"storage_size={storage_size} changes nothing here"), stacklevel=2)


class E3B(Reward):
    """Elliptical episodic bonus."""

    def __init__(
        self,
        envs: Any,
        device: str = "cpu",
        beta: float = 1.0,
        kappa: float = 0.0,
        gamma: float | None = None,
        rwd_norm_type: str = "rms",
        obs_norm_type: str = "none",
        ridge: float = 0.1,
        latent_dim: int = 128,
        lr: float = 0.001,
        batch_size: int = 256,
        update_proportion: float = 1.0,
        encoder_model: str = "mnih",
        weight_init: str = "orthogonal",
    ) -> None:
        """Make an E3B."""
        super().__init__("e3b", locals(), ridge=ridge, feature_dim=latent_dim)


class DB(Latent):
    """The Dynamic Bottleneck, which RLeXplore does not have, with the keywords of the others."""

    bonus = "db"
    size = "latent_dim"


@contextmanager
def _their_names() -> Iterator[None]:
    """Name, in an error about a setting of ours, the keyword that the user has given."""
    try:
        yield
    except ConfigError as error:
        name, equals, rest = str(error).partition("=")
        raise ConfigError((RENAMED | RENAMED_OPTIONS).get(name, name) + equals + rest) from None


def _one_of(given: dict[str, Any], name: str, *known: str) -> str:
    """Return a keyword's value; raise ConfigError unless it is known."""
    value = given[name]
    if value not in known:
        raise ConfigError(f"{name}={value!r}: use {' or '.join(known)}")
    return str(value)
