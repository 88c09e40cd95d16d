"""What one process of several does in tests/test_parallel.py; run by torchrun, or called for the run of one process."""

import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from ssedb.parallel import ALONE, Team

from ssedb import parallel
from ssedb.bonuses.icm import IntrinsicCuriosity
from ssedb.collect.rollout import STACK
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.trainer import Trainer

UPDATES = 3


class OwnNoise(IntrinsicCuriosity):
    """A bonus that draws for its rows alone: every process would use the same noise."""

    def loss(self, obs, actions, next_obs, mask=None):
        loss, figures = super().loss(obs, actions, next_obs, mask)
        return loss + torch.randn(len(obs)).square().mean(), figures


KINDS = {
    "db-paper": dict(bonus="db", noise="random-box"),
    "db-sample": dict(bonus="db", noise="flicker", bonus_epochs=2, bonus_options=dict(nce_input="sample")),
    "db-ours": dict(bonus="db", noise="pixel", fidelity="ours"),
    "db-unmasked": dict(bonus="db", mask_boundaries=False, bonus_options=dict(prediction_std="calibrated")),
    "rnd": dict(bonus="rnd", noise="random-box"),
    "icm": dict(bonus="icm", noise="sticky", extrinsic_coef=1.0),
    "random-features": dict(bonus="random-features"),
    "none": dict(bonus="none"),
    "disagreement": dict(bonus="disagreement", noise="clouds"),
    "cb": dict(bonus="cb"),
    "count": dict(bonus="count", noise="noisy-tv"),
    "re3": dict(bonus="re3"),
    "db-ucb": dict(bonus="db-ucb"),
    "db-bebold": dict(bonus="db-bebold"),
    "db-ngu": dict(bonus="db-ngu", bonus_options=dict(memory=256)),
    "db-count": dict(bonus="db-count", bonus_options=dict(memory=64)),
    "db-marginal": dict(bonus="db-marginal"),
    "db-ensemble": dict(bonus="db-ensemble", noise="random-box", fidelity="ours"),
    "e3b": dict(bonus="e3b", noise="random-box", bonus_options=dict(slots=8)),
    "lbs": dict(bonus="lbs", noise="random-box"),
    "lpm": dict(bonus="lpm", noise="random-box"),
    "own-noise": dict(bonus="tests.parallel_worker:OwnNoise"),
}  # fmt: skip


def config(kind: str) -> TrainConfig:
    settings = dict(
        env="rooms-small",
        preset="rooms",
        num_envs=4,
        rollout_steps=16,
        minibatch_envs=2,
        bonus_epochs=1,
    )
    return TrainConfig(**{**settings, "device": "cpu", "max_episode_steps": 23, **KINDS[kind]})


@contextmanager
def float64():
    """All that is float32 becomes float64. What is summed in another order then differs by 1e-16 and not by 1e-7, which
    Adam and a few updates may make a thousand times more of."""
    before, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = before


@float64()
def play(kind: str, team: Team = ALONE) -> dict:
    """Three updates, and all there is to compare."""
    trainer = Trainer(config(kind), team=team)
    seen: dict = {
        name: [] for name in ("rows", "frames", "rewards", "advantages", "gradients", "masked")
    }
    descend, loss, pay = trainer._descend, trainer.bonus.loss, trainer.intrinsic_rewards

    def spy_descend(total, adam):
        descend(total, adam)
        seen["gradients"].append(
            [p.grad.clone() for p in adam.param_groups[0]["params"] if p.grad is not None]
        )

    def spy_loss(obs, actions, next_obs, mask):
        if torch.is_grad_enabled():  # not the check before the first update
            seen["masked"].append(0 if mask is None else int((~mask).sum()))
        return loss(obs, actions, next_obs, mask)

    def spy_pay():
        seen["rewards"].append(pay())
        return seen["rewards"][-1]

    trainer._descend, trainer.bonus.loss, trainer.intrinsic_rewards = spy_descend, spy_loss, spy_pay
    for _ in range(UPDATES):
        try:
            row = trainer.iterate()
        except ConfigError as error:
            return {"refused": str(error)}
        seen["rows"].append({k: v for k, v in row.items() if k != "sps"})
        seen["frames"].append(
            trainer.rollout.frames[STACK:].clone()
        )  # the first are the next rollout's already
        seen["advantages"].append(trainer.advantages.clone())
    return {**seen, "state": trainer.state_dict()}


if __name__ == "__main__":
    out, kinds = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    with parallel.join() as team:
        torch.save({kind: play(kind, team) for kind in kinds}, out / f"{team.rank}.pt")
