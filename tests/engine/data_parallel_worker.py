"""What one process of two does in tests/engine/test_data_parallel.py; torchrun starts it."""

import copy
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch

import ssedb
from ssedb.engine.distributed import process_group
from ssedb.runs import loop
from ssedb.trainer import Trainer

SIZES = dict(
    env="rooms-tiny",
    preset="rooms",
    noise="random-box",
    num_envs=4,
    rollout_steps=16,
    minibatch_envs=2,
    bonus_epochs=1,
    obs_norm_steps=64,
    max_episode_steps=13,
    device="cpu",
    checkpoint_minutes=0.0,
)
SMALL = {
    "count": {"table_bits": 10},
    "db-count": {"memory": 40},
    "db-ensemble": {"memory": 40, "models": 2},
    "db-ngu": {"memory": 128},
    "disagreement": {"models": 3},
    "e3b": {"slots": 8},
}
"""Options that keep a bonus small; the first rollout overwrites rows of these memories."""
UPDATES = 6
"""Of the run that nobody interrupts."""


def config(bonus: str) -> ssedb.TrainConfig:
    return ssedb.TrainConfig(**SIZES, bonus=bonus, bonus_options=SMALL.get(bonus, {}))


def observe(trainer: Trainer) -> dict:
    """Run one iteration; return its results and the gradients of its optimizer steps.

    `rewards` are the intrinsic rewards of the rollout, before the updates and after them.
    """
    batches, gradients, rewards = {}, {"policy_step": [], "bonus_step": []}, []

    def spied_step(name, module):
        step = getattr(trainer, name)

        def call(t, envs, *tensors, rollout):
            metrics = step(t, envs, *tensors, rollout=rollout)
            batches.setdefault(name, (t, envs))
            found = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
            gradients[name].append({k: gradient.clone() for k, gradient in found.items()})
            return metrics

        return call

    def spied_rewards(rollout, compute=trainer.intrinsic_rewards):
        rewards.append(compute(rollout))
        return rewards[-1]

    with patch.multiple(
        trainer,
        policy_step=spied_step("policy_step", trainer.policy),
        bonus_step=spied_step("bonus_step", trainer.bonus),
        intrinsic_rewards=spied_rewards,
    ):
        row = trainer.iterate()
        trainer.intrinsic_rewards(trainer.rollout)
    del row["sps"]
    tensors = {k: v for k, v in vars(trainer.rollout).items() if isinstance(v, torch.Tensor)}
    rollout = {k: v.clone() for k, v in tensors.items() if not k.startswith("_")}
    state = trainer.state_dict()
    state = copy.deepcopy({k: state[k] for k in ("policy", "bonus", "reward_norm", "rng")})
    seen = {"batches": batches, "gradients": gradients, "rewards": rewards}
    return {**seen, "row": row, "rollout": rollout, "state": state}


def observe_process(bonus: str, group) -> dict:
    """Run two iterations in this process."""
    trainer = Trainer(config(bonus), group=group)
    seen = observe(trainer)
    draws = trainer.state_dict()["engine"]["ranks"]
    row = trainer.iterate()
    del row["sps"]
    second = {"second_row": row, "second_state": trainer.state_dict()}
    return {**seen, **second, "draws": draws}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    with process_group() as group:
        seen = {bonus: observe_process(bonus, group) for bonus in ssedb.list_bonuses()}
        torch.save(seen, out / f"{group.rank}.pt")
        # A process connects once: the run takes the group that is there.
        loop.distributed.process_group = lambda: nullcontext(group)
        ssedb.train(ssedb.TrainConfig(**SIZES, steps=64 * UPDATES, out=out / "whole"))
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text() for task in tasks.iterdir()] if tasks.exists() else []
    (out / f"threads-{group.rank}.txt").write_text("".join(names))
