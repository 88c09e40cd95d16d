"""How fast the parts of training run, and how near the whole comes to their sum. Figures of one run on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ssedb import engine
from ssedb.config import TrainConfig
from ssedb.normalize import ObsNorm
from ssedb.rollout import collect
from ssedb.trainer import Trainer

SECONDS = 4.0
"""How long each part is timed at least."""
WARM_UP = 5 if torch.cuda.is_available() else 1
"""Calls before that; a CUDA graph is recorded in them."""


def run_bench(config: TrainConfig, updates: int) -> dict[str, float]:
    """Times everything and prints a table; returns agent steps per second by part."""
    console = Console(highlight=False)
    rates: dict[str, float] = {}
    on_cpu = engine.pick_device(config.device).type == "cpu"
    if on_cpu:
        console.print("timing the plain update in a process of its own (contiguous layout, default allocator) ...")
        rates["update, plain"] = _plain_update_in_fresh_process(config)
    trainer = Trainer(config)
    console.print(
        f"{config.env}, noise {config.noise}, preset {config.preset}: {config.num_envs} envs x {config.rollout_steps} steps"
        f", {trainer.device}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    collect(trainer.rollout, trainer.env, trainer.act)
    rates["emulator"] = _rate(config.num_envs, lambda: trainer.env.step(_random_actions(trainer)))
    rates["inference"] = _rate(config.num_envs, lambda: trainer.act(trainer.rollout.obs(1)))
    rates["bonus"] = _rate(config.rollout_size, trainer.intrinsic_rewards)
    rates["update"] = update_rate(trainer)
    console.print(f"timing {updates} whole updates ...")
    rates["trained"] = _rate(config.rollout_size, trainer.iterate, repeats=updates)
    if on_cpu:
        lay_out_plainly(trainer)
        rates["update, plain with our allocator"] = update_rate(trainer)
    ideal = 1 / sum(1 / rates[part] for part in ("emulator", "inference", "bonus", "update"))
    table = Table("part", "agent steps/s", "")
    for part, meaning in {
        "emulator": "the environments alone, noise included",
        "inference": "choosing actions",
        "bonus": "intrinsic rewards",
        "update": f"PPO x{config.ppo_epochs} and {config.bonus} x{config.bonus_epochs}",
        "trained": "all of it, as `ssedb train` runs it",
    }.items():
        table.add_row(part, f"{rates[part]:,.0f}", meaning)
    table.add_row("ideal", f"{ideal:,.0f}", "1 / (1/emulator + 1/inference + 1/bonus + 1/update)")
    table.add_row("trained / ideal", f"{rates['trained'] / ideal:.3f}", "")
    if on_cpu:
        for plain in ("update, plain", "update, plain with our allocator"):
            table.add_row(plain, f"{rates[plain]:,.0f}", f"ours is {rates['update'] / rates[plain]:.2f}x as fast")
    if trainer.device.type == "cuda":
        table.add_row("GPU memory", f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB", "at its highest")
    console.print(table)
    trainer.env.close()
    return {**rates, "ideal": ideal}


def update_rate(trainer: Trainer) -> float:
    """Agent steps per second of the updates alone, from single minibatches of PPO and of the bonus."""
    config = trainer.config
    trainer.advantages.normal_()
    t, envs = trainer.rollout.indices(torch.arange(config.minibatch_envs, device=trainer.device))
    ppo = _rate(len(t), lambda: trainer.learn_policy(t, envs, rollout=trainer.rollout))
    bonus = _rate(len(t), lambda: trainer.learn_bonus(t, envs, rollout=trainer.rollout))
    return 1 / (config.ppo_epochs / ppo + config.bonus_epochs / bonus)


def lay_out_plainly(trainer: Trainer) -> None:
    """Turns a trainer's networks into what one would write first: contiguous tensors, no care for layout."""

    class PlainNorm(ObsNorm):
        def forward(self, obs: Tensor) -> Tensor:
            return (obs.float() - self.mean) / self.std

    for module in (trainer.policy, trainer.bonus):
        module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        plain = PlainNorm(tuple(module.normalize.mean.shape[1:]))
        plain.load_state_dict(module.normalize.state_dict())
        module.normalize = plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for adam in (trainer.policy_adam, trainer.bonus_adam):
        adam.state.clear()


def _plain_update_in_fresh_process(config: TrainConfig) -> float:
    names = ("env", "noise", "preset", "num_envs")
    settings = {name: getattr(config, name) for name in names} | {"device": "cpu"}
    command = [sys.executable, "-m", "ssedb.bench", json.dumps(settings)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _plain_update(settings: dict[str, Any]) -> float:
    engine.tune_allocator = lambda: False
    trainer = Trainer(TrainConfig(**settings))
    lay_out_plainly(trainer)
    return update_rate(trainer)


def _random_actions(trainer: Trainer) -> Tensor:
    return torch.randint(trainer.env.num_actions, (trainer.env.num_envs,), device=trainer.device)


def _rate(steps: int, part: Callable[[], object], repeats: int | None = None) -> float:
    """Agent steps per second of `part`, which does `steps` of them; once to warm up, then for a few seconds."""
    if repeats is None:
        for _ in range(WARM_UP):
            part()
    _wait()
    began, done = time.perf_counter(), 0
    while done < (repeats or 2) or (repeats is None and time.perf_counter() - began < SECONDS):
        part()
        done += 1
        if repeats is None:
            _wait()
    _wait()
    return steps * done / (time.perf_counter() - began)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    print(_plain_update(json.loads(sys.argv[1])))
