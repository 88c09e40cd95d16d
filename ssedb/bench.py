"""Speed of training and its parts, against the environments alone, on one machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from torch import Tensor

from ssedb.collect import environments
from ssedb.collect.environments import env_of
from ssedb.collect.pipelined import PipelinedCollector
from ssedb.config import TrainConfig
from ssedb.engine import host
from ssedb.engine.base import Engine
from ssedb.envs.atari import AtariEnv
from ssedb.envs.names import atari_games
from ssedb.errors import TrainingError
from ssedb.normalize import ObsNorm
from ssedb.terminal import plural
from ssedb.trainer import Trainer

SECONDS = 2.0
"""Least time for which each part is timed."""
WARM_UP, WARM_UP_ITERATIONS = 5, 4
"""Calls, and whole iterations, before that: both rollouts' CUDA graphs. A CPU needs one."""


@dataclass(frozen=True)
class Rates:
    """Speed of each part of training and of the whole."""

    by_part: dict[str, float]
    """Agent steps per second."""
    whole: SideBySide
    gpu_memory: str = ""


def measure_rates(config: TrainConfig, updates: int, tell: Callable[[str], None]) -> Rates:
    """Time every part of training, and whole updates in turn with the environments alone.

    Args:
        config: what to train.
        updates: whole updates to time.
        tell: takes a line for what is being timed.
    """
    rates: dict[str, float] = {}
    on_cpu = host.pick_device(config.device).type == "cpu"
    if on_cpu:
        how = "contiguous layout, default allocator"
        tell(f"timing the plain update in a process of its own ({how}) ...")
        rates["update, plain"] = _plain_update_in_fresh_process(config)
    trainer = Trainer(config)
    tell(title(config, trainer))
    library = library_vector(config)
    turns = f"{plural(updates, 'update')} of training, in turn with the environments alone"
    tell(f"timing {turns}; on a CPU that is the longest part ...")
    whole = side_by_side(trainer, updates, library)
    rates |= {"emulator": whole.rate("alone"), "trained": whole.rate("trained")}
    if library is not None:
        rates["library"] = whole.rate("library")
        library.close()
    tell("timing the parts ...")
    rate, rollout = partial(_rate, trainer.engine), trainer.rollout
    act, obs = trainer.engine.wrap(trainer.policy.act), rollout.obs(1)
    rates["inference"] = rate(config.num_envs, lambda: act(obs))
    rates["bonus"] = rate(config.rollout_size, lambda: trainer.intrinsic_rewards(rollout))
    rates["update"] = update_rate(trainer)
    if on_cpu:
        lay_out_plainly(trainer)
        rates["update, plain with our allocator"] = update_rate(trainer)
    parts = ("emulator", "inference", "bonus", "update")
    rates["ideal"] = 1 / sum(1 / rates[part] for part in parts)
    trainer.close()
    return Rates(rates, whole, "" if on_cpu else gpu_memory())


def update_rate(trainer: Trainer) -> float:
    """Return agent steps per second of the updates alone, timed on single minibatches."""
    config, rollout, rate = trainer.config, trainer.rollout, partial(_rate, trainer.engine)
    advantages, returns = torch.randn_like(rollout.rewards), torch.zeros_like(rollout.rewards)
    t, envs = rollout.indices(torch.arange(config.minibatch_envs, device=trainer.device))
    ppo = rate(len(t), lambda: trainer.policy_step(t, envs, advantages, returns, rollout=rollout))
    with trainer.engine.in_background():
        bonus = rate(len(t), lambda: trainer.bonus_step(t, envs, rollout=rollout))
    trainer.engine.wait_for_background()
    return 1 / (config.ppo_epochs / ppo + config.bonus_epochs / bonus)


@dataclass(frozen=True)
class SideBySide:
    """Times of three things in turn, as everything drifts with the machine.

    Whole updates (`trained`), their environments with nothing else to do (`alone`), and as many
    games in one vector of the emulator library (`library`).
    """

    steps: int
    """Agent steps of one measurement."""
    seconds: dict[str, list[float]]
    """Of each measurement."""

    def rate(self, what: str) -> float:
        """Return agent steps per second."""
        return self.steps * len(self.seconds[what]) / sum(self.seconds[what])

    def ratio(self, what: str) -> float:
        """Return the speed of training over that of `what`."""
        return self.rate("trained") / self.rate(what)

    def against(self, what: str) -> str:
        """Return the ratio as text, with its standard error over the measurements."""
        ratios = np.divide(self.seconds[what], self.seconds["trained"])
        error = f" +- {ratios.std(ddof=1) / len(ratios) ** 0.5:.3f}" if len(ratios) > 1 else ""
        return f"{self.ratio(what):.3f}{error}"

    def columns(self) -> list[str]:
        """Return the three rates and the two ratios as text; "-" where nothing was timed."""
        timed = self.seconds
        names = ("library", "alone", "trained")
        rates = [f"{self.rate(what):,.0f}" if what in timed else "-" for what in names]
        return rates + [self.against(what) if what in timed else "-" for what in names[:2]]


def side_by_side(
    trainer: Trainer, updates: int, library: AtariVectorEnv | None = None
) -> SideBySide:
    """Time training, its environments alone and, if given, the library's vector, in turn."""
    seconds: dict[str, list[float]] = {}

    def time_it(what: str, part: Callable[[], object]) -> None:
        began = time.perf_counter()
        part()
        seconds.setdefault(what, []).append(time.perf_counter() - began)

    for _ in range(WARM_UP_ITERATIONS if trainer.device.type == "cuda" else 1):
        trainer.iterate()
    for _ in range(updates):
        trainer.finish()
        trainer.engine.synchronize()
        if library is not None:
            time_it("library", lambda: step_vectors([[library]], trainer.config.rollout_steps))
        time_it("alone", lambda: _step_alone(trainer))
        if trainer.engine.overlaps:
            trainer.iterate()  # so that the next overlaps a bonus update, as it does in training
        time_it("trained", trainer.iterate)
    return SideBySide(trainer.config.rollout_size, seconds)


def library_vector(config: TrainConfig) -> AtariVectorEnv | None:
    """Make all games of a configuration as one vector of the library; None without games."""
    if config.env not in atari_games():
        return None
    source = env_of(config, config.num_envs, 0, torch.device("cpu")).env
    assert isinstance(source, AtariEnv)
    source.reset()
    return source.ale


def _step_alone(trainer: Trainer) -> None:
    """Step the environments as often as in a rollout, each pool of emulators by itself."""
    collector, steps = trainer.collector, trainer.config.rollout_steps
    pools = collector.pools if isinstance(collector, PipelinedCollector) else ()
    sources = [getattr(env, "env", None) for env in (*(p.env for p in pools), trainer.env)]
    vectors = {id(source): source.ale for source in sources if isinstance(source, AtariEnv)}
    if vectors:
        step_vectors([[vector] for vector in vectors.values()], steps)
        return
    space, generator = trainer.policy.actions, torch.Generator()
    for _ in range(steps):
        trainer.env.step(space.random(trainer.env.num_envs, generator).to(trainer.device))
    trainer.engine.synchronize()


def step_vectors(groups: list[list[AtariVectorEnv]], steps: int) -> None:
    """Step vectors with random actions; each group in a thread, its vectors together."""

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
    """Turn a trainer's networks into what one would write first: contiguous, no care for layout."""

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


def title(config: TrainConfig, trainer: Trainer) -> str:
    """Return a line that says what is timed, where."""
    where = host.machine(trainer.device)["device"]
    if trainer.device.type == "cuda":
        where += f", {config.precision}, engine {config.engine}"
        where += ", deterministic" if config.deterministic else ""
    return (
        f"{config.env}, noise {config.noise_label}, preset {config.preset}: "
        f"{config.num_envs} envs x {config.rollout_steps} steps, "
        f"{where}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )


def gpu_memory() -> str:
    """Return the GPU memory that torch has allocated, and held, at its highest."""
    sizes = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return ", ".join(f"{bytes / 2**30:.2f} GiB" for bytes in sizes)


def _rate(engine: Engine, steps: int, part: Callable[[], object]) -> float:
    """Return agent steps per second of `part`, which does `steps` of them."""
    for _ in range(WARM_UP if torch.cuda.is_initialized() else 1):
        part()
    engine.synchronize()
    began, done = time.perf_counter(), 0
    while done < 2 or time.perf_counter() - began < SECONDS:
        part()
        done += 1
        engine.synchronize()
    return steps * done / (time.perf_counter() - began)


if __name__ == "__main__":
    print(_plain_update(json.loads(sys.argv[1])))
