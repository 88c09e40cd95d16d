"""What one process of two does in tests/engine/test_data_parallel.py; torchrun starts it."""

import sys
from contextlib import nullcontext
from pathlib import Path

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
    max_episode_steps=23,
    device="cpu",
    checkpoint_minutes=0.0,
)
BONUSES = ("db", "rnd", "count", "db-count", "db-ngu", "e3b")
"""Those that draw, count or remember, each in its own way."""
UPDATES = 6
"""Of the run that nobody interrupts."""


def config(bonus: str) -> ssedb.TrainConfig:
    # With a mask each process would weigh its rows by how many of them count.
    options = {"memory": 64} if bonus == "db-count" else {}
    return ssedb.TrainConfig(**SIZES, bonus=bonus, bonus_options=options, mask_boundaries=False)


def observe(bonus: str, group) -> dict:
    """Two iterations of a trainer: what came out, and the first steps of policy and bonus model."""
    trainer = Trainer(config(bonus), group=group)
    seen: dict = {"batches": {}, "weights": {}}

    def spy(name, module):
        step = getattr(trainer, name)

        def call(t, envs, *tensors, rollout):
            metrics = step(t, envs, *tensors, rollout=rollout)
            if name not in seen["batches"]:
                seen["batches"][name] = t, envs, *tensors
                seen["weights"][name] = [p.detach().clone() for p in module.parameters()]
            return metrics

        setattr(trainer, name, call)

    spy("policy_step", trainer.policy)
    spy("bonus_step", trainer.bonus)
    rows = [trainer.iterate()]
    rollout = {
        k: v.clone() for k, v in vars(trainer.rollout).items() if isinstance(v, torch.Tensor)
    }
    rows.append(trainer.iterate())
    for row in rows:
        row.pop("sps")
    return {**seen, "rows": rows, "rollout": rollout, "state": trainer.state_dict()}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    with process_group() as group:
        torch.save({bonus: observe(bonus, group) for bonus in BONUSES}, out / f"{group.rank}.pt")
        # A process connects once: the run takes the group that is there.
        loop.distributed.process_group = lambda: nullcontext(group)
        ssedb.train(ssedb.TrainConfig(**SIZES, steps=64 * UPDATES, out=out / "whole"))
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text() for task in tasks.iterdir()] if tasks.exists() else []
    (out / f"threads-{group.rank}.txt").write_text("".join(names))
