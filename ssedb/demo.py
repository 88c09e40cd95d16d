"""Why noise fools curiosity and not DB, in minutes on a laptop: DB, RND and a random agent on noisy Rooms."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ssedb import terminal
from ssedb.analysis import measures
from ssedb.analysis.maps import mean_by_cell
from ssedb.analysis.probe import (
    Transitions,
    count_correlation,
    draw_transitions,
    rewards_and_features,
)
from ssedb.collect.environments import look_around
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.envs.rooms.env import RoomsEnv
from ssedb.envs.rooms.world import World
from ssedb.noises import noise_of
from ssedb.runs.files import make_folder, write_json
from ssedb.runs.signals import handled
from ssedb.sweep.worker import cores
from ssedb.terminal import plural
from ssedb.terminal.bar import Bar
from ssedb.trainer import Trainer

METHODS = ("db", "rnd", "random")
TRANSITIONS, DRAWS = 256, 4


@dataclass
class Result:
    """One run: its curve (a row per update) and its maps of visits and of the bonus, by cell."""

    method: str
    seed: int
    rows: list[dict[str, float]] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)
    bonus: list[float | None] = field(default_factory=list)


def run_method(config: TrainConfig, method: str, seed: int, messages: Any, threads: int) -> Result:
    """Trains one method, probing its bonus along the way; runs in a process of its own."""
    torch.set_num_threads(threads)
    world = World(*_world(config))
    data = draw_transitions(world, None, TRANSITIONS, DRAWS, noise_of(config), seed=1)
    result = Result(method, seed)
    if method == "random":
        counts = _play_at_random(config, seed, result)
    else:
        own = dataclasses.replace(config, bonus=method, bonus_options={}, seed=seed, device="cpu")
        trainer = Trainer(own)
        trainer.fit_observations(look_around(own))
        counts = trainer.env.env.visit_counts  # type: ignore[attr-defined]
        result.rows.append({"steps": 0, **counts.metrics(), **_probe(trainer, data)})
        while trainer.steps < config.steps:
            trainer.iterate()
            result.rows.append(
                {"steps": trainer.steps, **counts.metrics(), **_probe(trainer, data)}
            )
            messages.put((method, seed, trainer.steps))
        rewards, _ = rewards_and_features(trainer.bonus, data)
        result.bonus = mean_by_cell(rewards.mean(0), data, world)
    messages.put((method, seed, config.steps))
    result.visits = counts.visits.view(len(world.cells), -1).sum(1).tolist()
    return result


def _play_at_random(config: TrainConfig, seed: int, result: Result) -> Any:
    size, layout_seed = _world(config)
    env = RoomsEnv(config.num_envs, size, layout_seed=layout_seed)
    env.reset()
    env.stagger()
    generator = torch.Generator().manual_seed(seed)
    result.rows.append({"steps": 0, **env.metrics()})
    while env.visit_counts.steps < config.steps:
        for _ in range(config.rollout_steps):
            env.step(torch.randint(env.num_actions, (env.num_envs,), generator=generator))
        result.rows.append({"steps": env.visit_counts.steps, **env.metrics()})
    return env.visit_counts


def _world(config: TrainConfig) -> tuple[str, int]:
    return rooms_world(config.env) or ("small", 0)


def _probe(trainer: Trainer, data: Transitions) -> dict[str, float]:
    rewards, features = rewards_and_features(trainer.bonus, data)
    pair_visits = trainer.env.env.visit_counts.pair_visits  # type: ignore[attr-defined]
    return {
        "noise_share": measures.noise_share(rewards),
        "feature_noise_share": 0.0 if features is None else measures.noise_share(features),
        "count_correlation": count_correlation(rewards, data, pair_visits),
    }


def run_demo(config: TrainConfig, seeds: int) -> list[Result]:
    """Runs everything, shows it, and writes `demo.png` and `demo.json` into `config.out`."""
    from ssedb.analysis.plots import plot_demo

    make_folder(config.out)
    console = terminal.console()
    console.print(
        f"Three agents explore {config.env} with no reward, under {config.noise} noise: DB, RND (curiosity by "
        f"prediction error) and one that acts at random; {config.steps:,} steps each, {plural(seeds, 'seed')}."
    )
    began = time.monotonic()
    results = _run_all(config, [(method, seed) for method in METHODS for seed in range(seeds)])
    print_table(console, results)
    plot_demo(results, World(*_world(config)), config, config.out / "demo.png")
    runs = [dataclasses.asdict(result) for result in results]
    about = {"env": config.env, "noise": config.noise, "runs": runs}
    write_json(config.out / "demo.json", about, indent=None)
    console.print(f"\nlook at      {config.out / 'demo.png'}", soft_wrap=True)
    console.print(f"numbers      {config.out / 'demo.json'}", soft_wrap=True)
    console.print(
        f"took         {time.monotonic() - began:.0f} s; a few minutes show a tendency, not a result (docs/rooms.md)"
    )
    return results


def _run_all(config: TrainConfig, runs: list[tuple[str, int]]) -> list[Result]:
    """Run as many at a time as there are cores, and show how far each is."""
    workers = max(1, min(cores(), len(runs)))
    context = multiprocessing.get_context("spawn")
    with ExitStack() as later:
        # The processes inherit it: a terminal sends Ctrl-C to all, and this one ends them.
        with handled(signal.SIG_IGN, signal.SIGINT):
            messages = later.enter_context(context.Manager()).Queue()
            pool = later.enter_context(ProcessPoolExecutor(workers, context))
            order = [
                pool.submit(run_method, config, *run, messages, max(1, cores() // workers))
                for run in runs
            ]
        later.enter_context(_ended_if_stopped(pool))
        bar = later.enter_context(Bar())
        waiting, done = set(order), dict.fromkeys(runs, 0)
        while waiting:
            ended, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            while not messages.empty():
                method, seed, steps = messages.get()
                done[method, seed] = min(steps, config.steps)
            for future in ended:
                future.result()  # a run that failed ends the demo with its error
            shares = [
                f"{method} seed {seed} {steps / config.steps:.0%}"
                for (method, seed), steps in done.items()
            ]
            total = len(runs) * config.steps
            bar.show(shares, sum(done.values()), total, last=not waiting)
        return [future.result() for future in order]


@contextmanager
def _ended_if_stopped(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Kill the pool's processes if the block is left early; the pool itself would wait for runs of minutes."""
    try:
        yield
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()
        raise


COLUMNS = {
    "noise_share": ("noise in the bonus", "lowest"),
    "feature_noise_share": ("noise in what it knows", "lowest"),
    "count_correlation": ("correlation with counts", "highest"),
    "states_share": ("states seen", "highest"),
}


def print_table(console: Console, results: list[Result]) -> None:
    """The last row of every run: mean over the seeds, and from the least to the most."""
    table = Table(
        "",
        *(label for label, _ in COLUMNS.values()),
        title="at the end: mean (least to most)",
        title_justify="left",
    )
    means: dict[str, dict[str, float]] = {name: {} for name in COLUMNS}
    for method in METHODS:
        cells = []
        for name in COLUMNS:
            values = [
                r.rows[-1][name] for r in results if r.method == method and name in r.rows[-1]
            ]
            if not values:
                cells.append("-")
                continue
            means[name][method] = sum(values) / len(values)
            cells.append(f"{means[name][method]:.2f} ({min(values):.2f} to {max(values):.2f})")
        table.add_row(method, *cells)
    terminal.print_table(console, table)
    for name, (label, better) in COLUMNS.items():
        best = (min if better == "lowest" else max)(
            means[name], key=lambda method: means[name][method]
        )
        console.print(f"{label}: {better} for {best}")
    console.print(
        "Noise in the bonus: the share of its variance that comes from redrawing the noise over the same true transitions; "
        "0 is blind to noise, 1 sees nothing else. Correlation with counts: do rarer state-action pairs get more?"
    )
