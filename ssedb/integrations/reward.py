"""A bonus for any trainer: samples in, intrinsic rewards out, its model trained on the way."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ssedb import validate
from ssedb.bonuses import make_bonus
from ssedb.bonuses.base import Bonus, Context, observes, require_result
from ssedb.config import FIDELITIES
from ssedb.engine import host
from ssedb.engine.base import Engine
from ssedb.errors import ConfigError, must_fit
from ssedb.integrations.cautions import note_empty_memory, require_rows
from ssedb.integrations.episodes import EpisodeNumbers, ResetSteps
from ssedb.integrations.inputs import Inputs
from ssedb.integrations.modes import own_modes
from ssedb.integrations.observations import ObservationScale
from ssedb.integrations.samples import SampleDict, Samples, as_data, join, one_step
from ssedb.integrations.saved import REMEDY, SHORTHAND, as_text, copied, require_made_for
from ssedb.integrations.scale import RewardScale
from ssedb.integrations.settings import Settings
from ssedb.integrations.spaces import resets_in_next_step
from ssedb.options import canonical_bonus, resolve_options
from ssedb.record import Record, require_finite
from ssedb.updates import bonus_step, train_bonus


class IntrinsicReward:
    """A bonus with its own optimizer, observation statistics, reward scale and randomness.

    Pass whole rollouts to `compute`. Or pass every step to `watch`, and call `compute` without
    samples at the end of a rollout.

    Attributes:
        bonus: the model, an `ssedb.bonuses.base.Bonus`.
        settings: all arguments but the environments.
        inputs: conversion of observations and actions, and their spaces.
        device: where the model lives.
        scale: what divides the rewards.
        metrics: means of the last update: losses, `bonus_raw` and `bonus`.
        updates: number of rollouts that the model was trained on.
    """

    @own_modes()
    def __init__(
        self,
        bonus: str,
        envs: Any,
        *,
        fidelity: str = "ours",
        preset: str = "small",
        device: str | torch.device = "auto",
        precision: str = "fp32",
        learning_rate: float = 3e-4,
        adam_eps: float = 1e-7,
        epochs: int = 3,
        batch_size: int = 256,
        share: float = 1.0,
        gamma: float = 0.99,
        reward_scale: Literal["run", "recent", "none"] | None = None,
        fit_obs: bool = True,
        rgb: bool | None = None,
        obs_key: str | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Make a bonus for environments.

        Args:
            bonus: a name of `ssedb list bonuses`, or `package.module:Class`.
            envs: environments of Gymnasium or Stable-Baselines3, or a pair of spaces
                (observations, actions).
            fidelity: `ours`, `paper` or `released` (docs/fidelity.md).
            preset: sizes of the networks: `paper`, `small` or `rooms`.
            device: `auto`, `cpu`, `cuda` or `cuda:N`.
            precision: of products on a GPU: `fp32`, `tf32` or `bf16`.
            learning_rate: Adam's rate.
            adam_eps: Adam's epsilon.
            epochs: passes over the samples in an update.
            batch_size: most transitions of a minibatch.
            share: of the transitions that each pass trains on, a random one.
            gamma: discount of the sums whose std scales the rewards; the trainer's, if it can be.
            reward_scale: std that divides the rewards: of the `run` (the paper's), of `recent`
                rollouts (ours), or `none`; as the fidelity has it unless given.
            fit_obs: whether the first samples, 1024 observations of 128 steps or more, fix the
                scale of observations. If not, images are divided by 255, and vectors are taken as
                they are.
            rgb: whether channels are colours, three to a frame; where they come in threes, if None.
            obs_key: entry of dictionary observations that the bonus sees. Unless given, it sees the
                only image, or if there is none all numbers as one vector.
            seed: of the weights and of everything random. Torch's own generators are left alone.
            options: settings of the bonus.
        """
        own = {**locals(), "device": str(device)}
        own = {k: v for k, v in own.items() if k not in ("self", "envs", "options")}
        own = validate.convert(Settings, own)
        seed, rate, eps, gamma = (own[k] for k in ("seed", "learning_rate", "adam_eps", "gamma"))
        self.device = host.pick_device(str(device))
        self.inputs = Inputs(envs, self.device, rgb, obs_key)
        self._engine = Engine(
            self.device, precision=precision, seed=seed, own_draws=True, guest=True
        )
        self._order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # of the CPU alone
            sizes = self.inputs.shape, self.inputs.actions
            made = make_bonus(bonus, *sizes, fidelity=fidelity, preset=preset, **options)
        self.settings = own | validate.plain(options)
        self.bonus: Bonus = self._engine.prepare(made)
        if self.bonus.needs_states:
            raise ConfigError(f"bonus={bonus!r}: it counts true states, which no trainer tells")
        self._adam = self._engine.adam(self.bonus, rate, eps)
        self._step = self._engine.wrap(bonus_step)
        scale = FIDELITIES[fidelity]["reward_scale"] if reward_scale is None else reward_scale
        self.scale = RewardScale(scale, gamma, self.device)
        self._made_for = as_text(
            bonus=canonical_bonus(bonus),
            observations=self.inputs.shape,
            entries=self.inputs.select.names,
            actions=self.inputs.spaces[1],
            fidelity=fidelity,
            preset=preset,
            reward_scale=scale,
            **resolve_options(canonical_bonus(bonus), options, fidelity=fidelity, preset=preset),
        )
        self.epochs: int = own["epochs"]
        self.batch_size: int = own["batch_size"]
        self.share: float = own["share"]
        self._episodes = EpisodeNumbers(self.device, fixed=self.bonus.uses_context)
        self._reset_steps = ResetSteps(self.device, resets_in_next_step(envs))
        self._watched: list[Samples] = []
        self._obs_scale = ObservationScale(self.inputs.shape, self.device, fixed=not fit_obs)
        self.updates = 0
        self.metrics: dict[str, float] = {}

    @own_modes()
    def watch(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminateds: Any,
        truncateds: Any,
        next_observations: Any,
        valid: Any = None,
    ) -> None:
        """Remember one step of all environments, [N, ...], until the next `compute` or `update`.

        Args:
            observations: those before the step.
            actions: those that the environments executed.
            rewards: the environment's; nothing depends on them.
            terminateds: whether the episode ended.
            truncateds: whether the episode was cut.
            next_observations: those after the step; at an episode's end its last observation.
            valid: bool [N], whether the action led to the next observation; False where an
                environment was only reset. Found out by comparing observations unless given.
        """
        if np.ndim(terminateds) != 1:
            raise ConfigError(
                f"terminateds of shape {list(np.shape(terminateds))}: watch takes a step of N "
                "environments, [N, ...]; of a single one give [1, ...]"
            )
        lead = np.shape(terminateds)
        obs, next_obs = (self.inputs.select(x, lead) for x in (observations, next_observations))
        values = (obs, actions, terminateds, truncateds, next_obs)
        samples = self.samples(one_step(values, valid))
        if self._watched and samples.size != self._watched[0].size:
            raise ConfigError(
                f"a step of {samples.size[1]} environments, after {self._watched[0].size[1]}; "
                "watch all of them in every step"
            )
        self._watched.append(samples)
        self._reset_steps.advance(samples.dones)

    @own_modes()
    def compute(self, samples: SampleDict | None = None, sync: bool = True) -> Tensor:
        """Return the intrinsic rewards of a rollout, float32 [T, N], scaled.

        Args:
            samples: the rollout; what was watched since the last one unless given.
            sync: whether to update the model, the counts and the scales, too. If not, nothing
                changes.
        """
        if samples is None and not self._watched:
            raise ConfigError("nothing was watched since the last rollout; give samples, or watch")
        rollout = join(self._watched) if samples is None else self._given(samples)
        if not sync:
            return self._peek(rollout)
        self.fit_observations(rollout.obs)
        raw = self.raw_rewards(rollout)
        scaled = self.scale.add(raw)
        self.observe(rollout)
        self.summarize(self.train(rollout), raw, scaled)
        self._watched = []
        return scaled

    def _given(self, samples: SampleDict) -> Samples:
        """Return samples on the device; steps that were watched as well are the last ones of them.

        What was watched tells which of them only reset: environments are beyond their first.
        """

        def acting_steps(dones: Tensor) -> Tensor:
            acting = self._reset_steps.acting_steps(dones)
            watched = self._watched[-len(dones) :]
            if watched and watched[0].size[1] == dones.shape[1]:
                acting[-len(watched) :] = torch.cat([step.valid for step in watched])
            return acting

        return self.inputs.samples(samples, acting_steps)

    def _peek(self, rollout: Samples) -> Tensor:
        """Return the rewards that `compute` would, and change nothing."""
        normalize = self.bonus.normalize
        kept = copied([normalize.state_dict(), self._engine.state_dict()])
        try:
            self.fit_observations(rollout.obs, keep=False)
            return self.scale.after(self.raw_rewards(rollout))
        finally:
            # Wrappers and losses that share the reward use both as they are.
            normalize.load_state_dict(kept[0])
            self._engine.load_state_dict(kept[1])

    @own_modes()
    def begin_episodes(self, which: Any = None) -> None:
        """Begin new episodes: environments were reset, though their episodes may not have ended.

        Args:
            which: bool [N], the environments that were reset; all unless given, and then there may
                be another number of them from now on.
        """
        if which is not None:
            which = as_data("which", which).to(self.device).bool()
        if self._watched:
            self._watched[-1].end_episodes(which)
        else:
            self._episodes.begin(which)
        self._reset_steps.begin(which)

    def update(self, samples: SampleDict | None = None) -> None:
        """Update on a rollout as `compute` does, without returning the rewards."""
        self.compute(samples)

    @own_modes()
    def forget_watched(self) -> None:
        """Drop the steps watched since the last rollout; episodes that ended in them are over."""
        if self._watched:
            self._episodes.advance(join(self._watched))
        self._watched = []

    def identity(self) -> dict[str, str]:
        """Return all settings but the device, the options of the bonus and the spaces, as text.

        Settings that were left out have their defaults: two rewards of the same identity would
        learn the same.
        """
        own = {field.name: self.settings[field.name] for field in dataclasses.fields(Settings)}
        texts = as_text(**own) | self._made_for
        return {k: v for k, v in texts.items() if k not in (*SHORTHAND, "device")}

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all that changes, watched steps excepted."""
        return copied(self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "bonus": self.bonus.state_dict(),
            "adam": self._adam.state_dict(),
            "scale": self.scale.state_dict(),
            "engine": self._engine.state_dict(),
            "order": self._order.get_state(),
            "made_for": self._made_for,
            "episodes": self._episodes.state_dict(),
            "reset_steps": self._reset_steps.state_dict(),
            "observations": self._obs_scale.state_dict(),
            "updates": self.updates,
        }

    @own_modes()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of the same bonus, options, scale and spaces, from any device.

        How the model is trained (rate, passes and the like) is as this reward was made.
        """
        made_for = state.get("made_for") if isinstance(state, dict) else None
        require_made_for(made_for, self._made_for)
        with must_fit("the state does not fit this reward", REMEDY):
            self.bonus.load_state_dict(state["bonus"])
            groups = self._adam.state_dict()["param_groups"]
            # Adam keeps the tensors that it is given, and changes them.
            self._adam.load_state_dict({**copied(state["adam"]), "param_groups": groups})
            self.scale.load_state_dict(state["scale"])
            self._engine.load_state_dict(state["engine"])
            self._order.set_state(state["order"].cpu())
            self._episodes.load_state_dict(state["episodes"])
            self._reset_steps.load_state_dict(state["reset_steps"])
            self._watched = []
            self._obs_scale.load_state_dict(state["observations"])
            self.updates = state["updates"]

    # The steps that `compute` is made of, for who rewards transitions one by one.

    def samples(self, samples: SampleDict) -> Samples:
        """Bring samples to the device in the shapes and numbers that the bonus takes."""
        return self.inputs.samples(samples, self._reset_steps.acting_steps)

    def fit_observations(self, obs: Tensor, keep: bool = True) -> None:
        """Set the scale of observations by these [T, N, *shape] and all before, unless it is fixed.

        Args:
            obs: as the bonus takes them.
            keep: whether to count them for good.
        """
        if self._obs_scale.fixed:
            return
        scale = self._obs_scale if keep else copy.deepcopy(self._obs_scale)
        self.bonus.normalize.set(*scale.add(obs, self.batch_size))

    @torch.no_grad()
    def raw_rewards(self, rollout: Samples) -> Tensor:
        """Return the bonus of every transition, [T, N], not scaled; 0 where it is not valid."""
        require_rows(self.settings["bonus"], self.bonus, rollout)
        rewards = torch.zeros(rollout.size, device=self.device)
        with self._engine.in_background(), self._engine.precision.products():
            for t, envs in rollout.groups(whole=self.bonus.uses_context):
                reward = self.bonus.reward(*self._experience(rollout, t, envs))
                rewards[t, envs] = require_result(self.bonus, "reward", reward, t.shape)
        return rewards

    @torch.no_grad()
    def observe(self, rollout: Samples) -> None:
        """Show every transition to a bonus that counts or remembers, and number new episodes."""
        with self._engine.in_background(), self._engine.precision.products():
            if observes(self.bonus):
                for t, envs in rollout.groups(whole=self.bonus.uses_context):
                    self.bonus.observe(*self._experience(rollout, t, envs))
        self._episodes.advance(rollout)
        if not self._watched:  # else `watch` has advanced them
            self._reset_steps.advance(rollout.dones)

    def train(self, rollout: Samples) -> Record:
        """Train the model on a rollout: `epochs` passes over minibatches."""
        record = Record()
        epochs = (
            rollout.minibatches(self.batch_size, self.share, self._order)
            for _ in range(self.epochs)
        )

        def step(minibatch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
            return self._step(self.bonus, self._adam, rollout.transitions(*minibatch))

        with self._engine.in_background():
            for metrics in train_bonus(self.bonus, step, epochs, self._engine.wrap):
                record.add(**metrics)
        return record

    def summarize(self, record: Record, raw: Tensor, scaled: Tensor) -> None:
        """End an update: set the metrics; raise TrainingError if one is not finite."""
        self.updates += 1
        if self.updates == 1:
            note_empty_memory(self.settings["bonus"], self.bonus)
        record.add(bonus_raw=raw.mean(), bonus=scaled.mean())
        means = record.means(self._engine.mean)
        self.metrics = require_finite({"updates": self.updates, **means}, record)

    def _experience(self, rollout: Samples, t: Tensor, envs: Tensor) -> tuple[Any, ...]:
        """Return transitions and, for a bonus that uses it, their context."""
        transitions = rollout.transitions(t, envs)
        if not self.bonus.uses_context:
            return transitions
        first = self._episodes.first(rollout.size[1])
        return (*transitions, Context(rollout.episodes(first)[t, envs]))

    # Saving all of it, settings included.

    def checkpoint(self) -> dict[str, Any]:
        """Return settings and state, in main memory, as plain values and tensors."""
        return {"settings": self.settings, "state": copied(self._state(), "cpu")}

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], envs: Any) -> IntrinsicReward:
        """Make a reward as it was for environments with the same spaces.

        Args:
            checkpoint: of `checkpoint`. Without a GPU, one that was on a GPU goes to the CPU.
            envs: environments, or a pair of spaces.
        """
        place = {} if torch.cuda.is_available() else {"device": "cpu"}
        reward = cls(envs=envs, **{**checkpoint["settings"], **place})
        reward.load_state_dict(checkpoint["state"])
        return reward

    def __repr__(self) -> str:
        sees = f"{self.settings['bonus']!r}, observations {tuple(self.inputs.shape)}"
        return f"IntrinsicReward({sees}, actions {self.inputs.spaces[1]}, {self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Stable-Baselines3 pickles what its models hold.
        return type(self).from_checkpoint, (self.checkpoint(), self.inputs.spaces)


def as_reward(bonus: str | IntrinsicReward, envs: Any, settings: dict[str, Any]) -> IntrinsicReward:
    """Return a reward that is made already, or make one; settings are for the latter alone."""
    if isinstance(bonus, str):
        return IntrinsicReward(bonus, envs, **settings)
    require_reward("bonus", bonus, "give the name of a bonus, or an ssedb.IntrinsicReward")
    if settings:
        raise ConfigError(f"{next(iter(settings))}: give it to the IntrinsicReward")
    return bonus


def require_reward(
    name: str, value: Any, remedy: str = "give an ssedb.IntrinsicReward made for the environments"
) -> None:
    """Raise ConfigError unless an argument is a reward."""
    if not isinstance(value, IntrinsicReward):
        shown = " ".join(repr(value).split())[:60]
        raise ConfigError(f"{name}={shown}: {remedy}")
