"""Rewards at every step, for wrappers of environments: they cannot wait for a rollout's end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssedb.errors import ConfigError
from ssedb.integrations.cautions import require_rows
from ssedb.integrations.modes import own_modes
from ssedb.integrations.reward import IntrinsicReward
from ssedb.integrations.samples import Samples, join, one_step
from ssedb.integrations.scale import WINDOW


class Stepwise:
    """Intrinsic rewards step by step, by a bonus that is updated every so many steps.

    The first steps, WINDOW or `update_every` if that is more, are not rewarded: from them the
    observation statistics and the reward scale are made. From then on a step is divided by the
    scale of the steps before the last update.
    """

    def __init__(self, reward: IntrinsicReward, update_every: int, trains: bool = True) -> None:
        """Prepare for steps.

        Args:
            reward: what rewards them.
            update_every: steps of all environments between two updates of the bonus.
            trains: whether an update trains the model, too; if not, someone else does.
        """
        self.reward = reward
        self.update_every = update_every
        self.trains = trains
        self._steps: list[Samples] = []
        self._raw: list[Tensor] = []
        self._scaled: list[Tensor] = []

    @own_modes()
    def __call__(
        self,
        observations: Any,
        actions: Any,
        dones: Any,
        next_observations: Any,
        valid: Any = None,
    ) -> np.ndarray:
        """Return the rewards of one step, float32 [N]; update the bonus where it is due.

        Args:
            observations: those before the step, [N, ...].
            actions: those that the environments executed, [N, ...].
            dones: bool [N], whether the episode ended.
            next_observations: those after the step, [N, ...]; at an end the last observation.
            valid: bool [N], False where an environment was only reset; all True unless given.
        """
        if observations is None:
            raise ConfigError("a step before any reset: reset the environments first")
        values = (observations, actions, dones, dones, next_observations)
        valid = np.ones(len(dones), bool) if valid is None else valid
        samples = self.reward.samples(one_step(values, valid))
        require_rows(self.reward.settings["bonus"], self.reward.bonus, samples)
        raw = torch.zeros(samples.size, device=self.reward.device)
        if self._ready:
            raw = self.reward.raw_rewards(samples)
            self.reward.observe(samples)
        scaled = self.reward.scale.divide(raw)
        self._steps.append(samples)
        self._raw.append(raw)
        self._scaled.append(scaled)
        wanted = self.update_every if self._ready else max(self.update_every, WINDOW)
        if len(self._steps) >= wanted:
            self._update()
        return scaled[0].cpu().numpy()

    @own_modes()
    def begin_episodes(self, which: Any = None) -> None:
        """Begin new episodes: environments were reset, all or those in `which`, bool [N]."""
        self.reward.begin_episodes(which)
        if self._steps and not self._ready:  # else their episodes are numbered already
            which = None if which is None else torch.as_tensor(which, device=self.reward.device)
            self._steps[-1].end_episodes(which)

    @property
    def _ready(self) -> bool:
        """Whether steps enough were counted to reward the next one."""
        return self.reward.scale.counted >= WINDOW

    def _update(self) -> None:
        """Train on the steps since the last update, and let their rewards count in the scale."""
        rollout, raw = join(self._steps), torch.cat(self._raw)
        self.reward.fit_observations(rollout.obs)
        if not self._ready:
            raw = self.reward.raw_rewards(rollout)
            self.reward.observe(rollout)
        self.reward.scale.add(raw)
        if self.trains:
            self.reward.summarize(self.reward.train(rollout), raw, torch.cat(self._scaled))
        self._steps, self._raw, self._scaled = [], [], []
