"""One iteration of two processes, computed in one process by the plain engine."""

from functools import partial

import torch
from torch import Tensor

from ssedb import TrainConfig
from ssedb.collect.environments import training_envs
from ssedb.collect.rollout import Rollout
from ssedb.engine.base import Engine
from ssedb.engine.distributed import Group
from ssedb.envs.base import Env, Step
from ssedb.trainer import Trainer

GROUPS = (Group(0, 2), Group(1, 2))
"""Numbers of the processes; nothing is exchanged here."""


class SideBySide(Env):
    """Environments of both processes, those of the first process first."""

    def __init__(self, config: TrainConfig) -> None:
        cpu = torch.device("cpu")
        self.envs = [env for group in GROUPS for env in training_envs(config, 0, cpu, group)]
        self.num_envs, self.num_actions = config.num_envs, self.envs[0].num_actions
        self.device, self.side = cpu, self.envs[0].side

    def reset(self) -> Tensor:
        return torch.cat([env.reset() for env in self.envs])

    def stagger(self) -> None:
        for env in self.envs:
            env.stagger()

    def step(self, actions: Tensor) -> Step:
        pairs = zip(self.envs, actions.chunk(len(self.envs)), strict=True)
        steps = [env.step(own) for env, own in pairs]
        names = ("frames", "rewards", "dones")
        return Step(*(torch.cat([getattr(step, name) for step in steps]) for name in names))

    def true_states(self) -> Tensor:
        return torch.cat([env.true_states() for env in self.envs])


def mean_of(metrics: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average metrics over the processes."""
    return {name: sum(found[name] for found in metrics) / len(metrics) for name in metrics[0]}


class SharesTrainer(Trainer):
    """Trainer on the plain engine that gives the bonus model one process's share after another.

    Attributes:
        engines: a plain engine for each process, which draws the numbers of its background work.
    """

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config, SideBySide(config))
        make = partial(Engine, self.device, seed=config.seed, own_draws=True)
        self.engines = [make(group=group) for group in GROUPS]
        self.bonus_step = self._average_step
        self.diagnose_step = self._average_diagnostics

    def _average_step(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        """Step down the average of the gradients that each process's share gives."""
        self.bonus_adam.zero_grad()
        found = []
        for share, engine in zip(shares(t, envs), self.engines, strict=True):
            mask = ~rollout.dones[share] if self.config.mask_boundaries else None
            with engine.in_background():
                loss, metrics = self.bonus.loss(*rollout.transitions(*share), mask)
            if loss.requires_grad:
                (loss / len(self.engines)).backward()
            found.append({"bonus_loss": loss.detach(), **metrics})
        self.bonus_adam.step()
        self.bonus.after_step()
        return mean_of(found)

    def _average_diagnostics(self, t: Tensor, envs: Tensor, rollout: Rollout) -> dict[str, Tensor]:
        parts = [rollout.transitions(*share) for share in shares(t, envs)]
        return mean_of([self.bonus.diagnostics(*part) for part in parts])


def shares(t: Tensor, envs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Split a minibatch, of which each process takes every second environment."""
    return [(t[group.rank :: 2], envs[group.rank :: 2]) for group in GROUPS]
