"""How fast training and its parts run, and how near it comes to the environments alone. Figures of one run, one machine."""

from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from rich.table import Table
from torch import Tensor

from ssedb import terminal
from ssedb.collect import environments
from ssedb.collect.environments import env_of, training_envs
from ssedb.collect.pipelined import PipelinedCollector
from ssedb.config import TrainConfig
from ssedb.engine import host
from ssedb.envs.atari import AtariEnv
from ssedb.envs.names import atari_games
from ssedb.envs.noisy import NoisyEnv
from ssedb.errors import TrainingError
from ssedb.noises import noise_of
from ssedb.normalize import ObsNorm
from ssedb.trainer import Trainer

SECONDS = 2.0
"""How long each part is timed at least."""
WARM_UP, WARM_UP_ITERATIONS = 5, 4
"""Calls and whole iterations before that, in which CUDA graphs are captured; a CPU needs one."""
RIVALS = ("icm", "disagreement", "cb", "re3", "rnd")


def run_bench(config: TrainConfig, updates: int) -> dict[str, float]:
    """Times everything and prints a table; returns agent steps per second by part."""
    console = terminal.console()
    rates: dict[str, float] = {}
    on_cpu = host.pick_device(config.device).type == "cpu"
    if on_cpu:
        console.print(
            "timing the plain update in a process of its own (contiguous layout, default allocator) ..."
        )
        rates["update, plain"] = _plain_update_in_fresh_process(config)
    trainer = Trainer(config)
    console.print(_title(config, trainer))
    library = library_vector(config)
    count = f"{updates} update{'s'[: updates > 1]}"
    console.print(
        f"timing {count} of training, in turn with the environments alone; on a CPU that is the longest part ..."
    )
    whole = side_by_side(trainer, updates, library)
    rates |= {"emulator": whole.rate("alone"), "trained": whole.rate("trained")}
    if library is not None:
        rates["library"] = whole.rate("library")
        library.close()
    console.print("timing the parts ...")
    act, obs = trainer.engine.capture(trainer.policy.act), trainer.rollout.obs(1)
    rates["inference"] = _rate(config.num_envs, lambda: act(obs))
    rates["bonus"] = _rate(config.rollout_size, lambda: trainer.intrinsic_rewards(trainer.rollout))
    rates["update"] = update_rate(trainer)
    if on_cpu:
        lay_out_plainly(trainer)
        rates["update, plain with our allocator"] = update_rate(trainer)
    ideal = 1 / sum(1 / rates[part] for part in ("emulator", "inference", "bonus", "update"))
    table = Table("part", "agent steps/s", "")
    for part, meaning in {
        "library": "all games in one vector of the emulator library, random actions",
        "emulator": f"{'the environments' if library is None else 'the games in the pools of training'}, random actions",
        "inference": "choosing actions",
        "bonus": "intrinsic rewards",
        "update": f"PPO x{config.ppo_epochs} and {config.bonus} x{config.bonus_epochs}",
        "trained": "all of it, as `ssedb train` runs it",
    }.items():
        if part in rates:
            table.add_row(part, f"{rates[part]:,.0f}", meaning)
    if library is not None:
        table.add_row("trained / library", whole.against("library"), "")
    table.add_row("trained / emulator", whole.against("alone"), "")
    table.add_row(
        "ideal",
        f"{ideal:,.0f}",
        "one part after the other: 1 / (1/emulator + 1/inference + 1/bonus + 1/update)",
    )
    table.add_row("trained / ideal", f"{rates['trained'] / ideal:.3f}", "")
    if on_cpu:
        for plain in ("update, plain", "update, plain with our allocator"):
            table.add_row(
                plain,
                f"{rates[plain]:,.0f}",
                f"ours is {rates['update'] / rates[plain]:.2f}x as fast",
            )
    else:
        table.add_row("GPU memory", _memory(), "allocated, and held by torch, at its highest")
    terminal.print_table(console, table)
    trainer.close()
    return {**rates, "ideal": ideal}


def run_all(config: TrainConfig, updates: int) -> dict[str, dict[str, float]]:
    """On a GPU: training against the emulators alone with each noise and each rival, updates alone, and Rooms."""
    console = terminal.console()
    results: dict[str, dict[str, float]] = {}
    lines: list[tuple[str, SideBySide]] = []

    def measure(
        name: str,
        config: TrainConfig,
        envs: list[NoisyEnv] | None,
        library: AtariVectorEnv | None,
    ) -> Trainer:
        began = time.perf_counter()
        trainer = Trainer(config, envs)
        got = side_by_side(trainer, updates, library)
        lines.append((name, got))
        results[name] = {what: got.rate(what) for what in got.seconds}
        console.print(f"{got.line(name)} ({time.perf_counter() - began:.0f} s)")
        return trainer

    device = host.pick_device(config.device)
    envs, library = training_envs(config, 0, device), library_vector(config)
    three = dataclasses.replace(config, bonus_epochs=3)
    began = time.perf_counter()
    trainer = Trainer(three, envs)
    console.print(_title(three, trainer))
    updates_alone = update_rate(trainer)
    results["update"] = {
        "trained": updates_alone,
        "compile and capture": time.perf_counter() - began,
    }
    console.print(
        f"updates alone, PPO x3 and DB x3: {updates_alone:,.0f} ({results['update']['compile and capture']:.0f} s)"
    )
    del trainer
    gc.collect()  # graphs hold on to it
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    trainer = measure(f"{config.env}, db, 3 epochs of each", three, envs, library)
    memory = _memory()
    results["memory"] = {
        "allocated": torch.cuda.max_memory_allocated(),
        "held": torch.cuda.max_memory_reserved(),
    }
    console.print(f"GPU memory: {memory} (allocated, and held by torch, at its highest)")
    del trainer
    for bonus in RIVALS:
        measure(
            f"{config.env}, {bonus}",
            dataclasses.replace(config, bonus=bonus, bonus_options={}),
            envs,
            library,
        )
    for env in envs:
        env.close()
    raw = dataclasses.replace(
        config, noise="random-box", fidelity="released", box_noise="wrap", pixel_noise="zeros"
    )
    envs = training_envs(raw, 0, device)
    if library is not None:
        library.close()
        library = library_vector(raw)
    for noise in ("random-box", "pixel"):
        noisy = dataclasses.replace(raw, noise=noise, bonus_options={}, bonus_epochs=3)
        pools = [NoisyEnv(pool.env, noise_of(noisy)) for pool in envs]
        measure(f"{config.env}, db, {noise} on raw frames", noisy, pools, library)
    for env in envs:
        env.close()
    measure(
        "rooms, db, 4096 worlds",
        dataclasses.replace(config, env="rooms", num_envs=4096, bonus_options={}),
        None,
        None,
    )
    table = Table(
        "what", "one vector of the library", "the pools alone", "trained", "/ library", "/ pools"
    )
    for name, got in lines:
        table.add_row(name, *got.columns())
    table.add_row("updates alone, PPO x3 and DB x3", "-", "-", f"{updates_alone:,.0f}", "-", "-")
    terminal.print_table(console, table)
    return results


def update_rate(trainer: Trainer) -> float:
    """Agent steps per second of the updates alone, from single minibatches of PPO and of the bonus."""
    config, rollout = trainer.config, trainer.rollout
    advantages, returns = torch.randn_like(rollout.rewards), torch.zeros_like(rollout.rewards)
    t, envs = rollout.indices(torch.arange(config.minibatch_envs, device=trainer.device))
    ppo = _rate(len(t), lambda: trainer.policy_step(t, envs, advantages, returns, rollout=rollout))
    with trainer.engine.side():
        bonus = _rate(len(t), lambda: trainer.bonus_step(t, envs, rollout=rollout))
    trainer.engine.join()
    return 1 / (config.ppo_epochs / ppo + config.bonus_epochs / bonus)


@dataclass(frozen=True)
class SideBySide:
    """What was timed in turn, as everything drifts with the machine: whole updates (`trained`), their environments with
    nothing else to do (`alone`), and as many games in one vector of the emulator library (`library`)."""

    steps: int
    """Agent steps of an iteration."""
    seconds: dict[str, list[float]]
    """Of each iteration."""

    def rate(self, what: str) -> float:
        return self.steps * len(self.seconds[what]) / sum(self.seconds[what])

    def ratio(self, what: str) -> float:
        return self.rate("trained") / self.rate(what)

    def against(self, what: str) -> str:
        """Trained against that, with the standard error from iteration to iteration."""
        ratios = np.divide(self.seconds[what], self.seconds["trained"])
        error = f" +- {ratios.std(ddof=1) / len(ratios) ** 0.5:.3f}" if len(ratios) > 1 else ""
        return f"{self.ratio(what):.3f}{error}"

    def columns(self) -> list[str]:
        rates = [
            f"{self.rate(what):,.0f}" if what in self.seconds else "-"
            for what in ("library", "alone", "trained")
        ]
        return rates + [
            self.against(what) if what in self.seconds else "-" for what in ("library", "alone")
        ]

    def line(self, name: str) -> str:
        names = ("library", "alone", "trained", "/ library", "/ alone")
        return f"{name}: " + ", ".join(
            f"{what} {column}" for what, column in zip(names, self.columns(), strict=True)
        )


def side_by_side(
    trainer: Trainer, updates: int, library: AtariVectorEnv | None = None
) -> SideBySide:
    """Times both, and the library's vector if there is one, in turn."""
    seconds: dict[str, list[float]] = {}

    def time_it(what: str, part: Callable[[], object]) -> None:
        began = time.perf_counter()
        part()
        seconds.setdefault(what, []).append(time.perf_counter() - began)

    for _ in range(WARM_UP_ITERATIONS if trainer.device.type == "cuda" else 1):
        trainer.iterate()
    for _ in range(updates):
        trainer.finish()
        _wait()
        if library is not None:
            time_it("library", lambda: step_vectors([[library]], trainer.config.rollout_steps))
        time_it("alone", lambda: _step_alone(trainer))
        if trainer.engine.overlaps:
            trainer.iterate()  # so that the next overlaps a bonus update, as it does in training
        time_it("trained", trainer.iterate)
    return SideBySide(trainer.config.rollout_size, seconds)


def library_vector(config: TrainConfig) -> AtariVectorEnv | None:
    """All games of a configuration in one vector, as the emulator library makes it; None for another world."""
    if config.env not in atari_games():
        return None
    source = env_of(config, config.num_envs, 0, torch.device("cpu")).env
    assert isinstance(source, AtariEnv)
    source.reset()
    return source.ale


def _step_alone(trainer: Trainer) -> None:
    """Make as many steps as a rollout has: of the emulators, each pool by itself, or of the world."""
    collector, steps = trainer.collector, trainer.config.rollout_steps
    pools = collector.pools if isinstance(collector, PipelinedCollector) else ()
    sources = [getattr(env, "env", None) for env in (*(p.env for p in pools), trainer.env)]
    vectors = {id(source): source.ale for source in sources if isinstance(source, AtariEnv)}
    if vectors:
        step_vectors([[vector] for vector in vectors.values()], steps)
        return
    for _ in range(steps):
        shape = (trainer.env.num_envs,)
        trainer.env.step(torch.randint(trainer.env.num_actions, shape, device=trainer.device))
    _wait()


def step_vectors(groups: list[list[AtariVectorEnv]], steps: int) -> None:
    """Random actions for all vectors of a group, then all their answers; each group in a thread of its own."""

    def step(vectors: list[AtariVectorEnv]) -> None:
        rng, choices = np.random.default_rng(0), len(vectors[0].ale.get_action_set())
        for _ in range(steps):
            for vector in vectors:
                vector.send(rng.integers(0, choices, vector.num_envs))
            for vector in vectors:
                vector.recv()

    with ThreadPoolExecutor(len(groups)) as threads:
        list(threads.map(step, groups))


def lay_out_plainly(trainer: Trainer) -> None:
    """Turns a trainer's networks into what one would write first: contiguous tensors, no care for layout."""

    class PlainNorm(ObsNorm):
        def for_convs(self, obs: Tensor) -> Tensor:
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
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        said = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise TrainingError(f"the process that times the plain update has failed: {said[-1]}")
    return float(run.stdout.split()[-1])


def _plain_update(settings: dict[str, Any]) -> float:
    environments.tune_allocator = lambda: False  # type: ignore[attr-defined]
    trainer = Trainer(TrainConfig(**settings))
    lay_out_plainly(trainer)
    return update_rate(trainer)


def _title(config: TrainConfig, trainer: Trainer) -> str:
    where = host.machine(trainer.device)["device"]
    precision = (
        f", {config.precision}, engine {config.engine}" if trainer.device.type == "cuda" else ""
    )
    return (
        f"{config.env}, noise {config.noise}, preset {config.preset}: {config.num_envs} envs x {config.rollout_steps} steps"
        f", {where}{precision}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )


def _memory() -> str:
    figures = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return ", ".join(f"{bytes / 2**30:.2f} GiB" for bytes in figures)


def _rate(steps: int, part: Callable[[], object]) -> float:
    """Agent steps per second of `part`, which does `steps` of them; a few calls to warm up, then some seconds."""
    for _ in range(WARM_UP if torch.cuda.is_initialized() else 1):
        part()
    _wait()
    began, done = time.perf_counter(), 0
    while done < 2 or time.perf_counter() - began < SECONDS:
        part()
        done += 1
        _wait()
    return steps * done / (time.perf_counter() - began)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    print(_plain_update(json.loads(sys.argv[1])))
