"""Exploration with and without noise in minutes on a laptop: RND, DB and chance on Rooms."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.managers import SyncManager
from typing import Any

import torch
from rich.table import Table

from ssedb import terminal
from ssedb.analysis import measures
from ssedb.collect.environments import look_around
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.envs.rooms.env import RoomsEnv
from ssedb.envs.rooms.world import World
from ssedb.errors import ConfigError
from ssedb.noises import noise_of, noises_over
from ssedb.runs.files import make_folder, write_json
from ssedb.runs.signals import handled, stop_requests
from ssedb.sweep.worker import cores, end_with_parent
from ssedb.terminal import plural
from ssedb.terminal.bar import Bar
from ssedb.trainer import Trainer
from ssedb.transitions import draw_transitions, rewards_and_features

DB, RND, RND_CLEAN, CHANCE = "DB under noise", "RND under noise", "RND without noise", "chance"
BONUSES = {DB: "db-ensemble", RND: "rnd", RND_CLEAN: "rnd"}
OPTIONS: dict[str, dict[str, Any]] = {DB: dict(memory=0, tau=0.999, model_input="direction")}
"""Options of the bonuses: runs so short forget little, and a memory would make them longer."""
AGENTS = (DB, RND, RND_CLEAN, CHANCE)
"""The agents, the slowest first, so that no core waits for it at the end."""
COST = {DB: 7, RND: 3, RND_CLEAN: 3, CHANCE: 0.01}
"""Seconds of a core for 10,000 steps, about: what an agent weighs in the progress."""
ROWS = 20
"""Rows of a run's curve, about."""
TRANSITIONS, DRAWS = 256, 4

Probe = Callable[[], dict[str, float]]
"""Measures the bonus, if there is one."""


@dataclass
class Result:
    """One run: a row of metrics now and then, and the visits of each cell at the end.

    A row has `steps`, the coverage that Rooms measures, `rooms` (how many were reached), and under
    noise `noise_share`, the share of noise in the bonus.
    """

    agent: str
    seed: int
    rows: list[dict[str, float]] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)


def run_agent(config: TrainConfig, agent: str, seed: int, messages: Any, threads: int) -> Result:
    """Run one agent to its end, in a process of its own; tell its steps to `messages`."""
    torch.set_num_threads(threads)
    result = Result(agent, seed)
    explore = _act_at_random if agent == CHANCE else _train
    for env, more in explore(config, agent, seed):
        steps, metrics = env.visit_counts.steps, env.metrics()
        if steps * ROWS // config.steps > len(result.rows) - 1 or steps >= config.steps:
            rooms = round(metrics["rooms_share"] * env.world.layout.size.rooms**2)
            result.rows.append({"steps": steps, "rooms": rooms, **metrics, **more()})
        messages.put((agent, seed, steps))
    result.visits = env.visit_counts.visits.view(len(env.world.cells), -1).sum(1).tolist()
    return result


def _train(config: TrainConfig, agent: str, seed: int) -> Iterator[tuple[RoomsEnv, Probe]]:
    """Train on a bonus; yield the environments and a probe of the bonus after each rollout."""
    options = OPTIONS.get(agent, {})
    settings: dict[str, Any] = dict(bonus=BONUSES[agent], bonus_options=options, seed=seed)
    if agent == RND_CLEAN:
        settings |= dict(noise="none", noise_variant="")
    own = dataclasses.replace(config, device="cpu", **settings)
    trainer = Trainer(own)
    trainer.fit_observations(look_around(own))
    env: RoomsEnv = trainer.env.env  # type: ignore[attr-defined]
    data = draw_transitions(env.world, None, TRANSITIONS, DRAWS, noise_of(config), seed=1)

    def probe() -> dict[str, float]:
        if agent == RND_CLEAN:
            return {}
        return {"noise_share": measures.noise_share(rewards_and_features(trainer.bonus, data)[0])}

    yield env, probe
    while trainer.steps < config.steps:
        trainer.iterate()
        yield env, probe


def _act_at_random(config: TrainConfig, agent: str, seed: int) -> Iterator[tuple[RoomsEnv, Probe]]:
    """Draw every action evenly; yield the environments after as many steps as a rollout has."""
    size, layout_seed = _world(config)
    env = RoomsEnv(config.num_envs, size, layout_seed=layout_seed)
    env.reset()
    env.stagger()
    generator = torch.Generator().manual_seed(seed)
    yield env, dict
    while env.visit_counts.steps < config.steps:
        for _ in range(config.rollout_steps):
            env.step(torch.randint(env.num_actions, (env.num_envs,), generator=generator))
        yield env, dict


def _world(config: TrainConfig) -> tuple[str, int]:
    return rooms_world(config.env) or ("tiny", 0)


def run_demo(config: TrainConfig, seeds: int) -> None:
    """Train every agent, print the results, and write `demo.png` and `demo.json`."""
    from ssedb.analysis.plots import plot_demo

    if not (noise := noise_of(config)).fits("images"):
        fitting = ", ".join(noises_over("images"))
        raise ConfigError(
            f"noise={config.noise}: it disturbs {noise.disturbs}, and {config.env} observes "
            f"images; use one of {fitting}"
        )
    make_folder(config.out)
    about = (
        f"Four agents explore {config.env} with no reward: RND (curiosity by prediction error) "
        f"without noise and under {config.noise}, DB ({BONUSES[DB]}) under {config.noise}, "
        f"and one that acts at random; {config.steps:,} steps each, {plural(seeds, 'seed')}."
    )
    print(terminal.wrapped(about), flush=True)
    began = time.monotonic()
    results = _run_all(config, [(agent, seed) for agent in AGENTS for seed in range(seeds)])
    world = World(*_world(config))
    print_results(results, world.layout.size.rooms**2)
    picture, numbers = config.out / "demo.png", config.out / "demo.json"
    plot_demo(results, world, config, picture)
    runs = [dataclasses.asdict(result) for result in results]
    write_json(numbers, {"env": config.env, "noise": config.noise, "runs": runs}, indent=None)
    took = f"{time.monotonic() - began:.0f} s"
    terminal.print_places({"look at": picture, "numbers": numbers, "took": took})


def _run_all(config: TrainConfig, runs: list[tuple[str, int]]) -> list[Result]:
    """Run as many at a time as there are cores, and show how far each is."""
    workers = max(1, min(cores(), len(runs)))
    context = multiprocessing.get_context("spawn")
    with ExitStack() as later:
        later.enter_context(stop_requests(_stop))
        # The processes inherit it: a terminal sends Ctrl-C to all, and this one ends them.
        with handled(signal.SIG_IGN, signal.SIGINT):
            manager = SyncManager(ctx=context)
            manager.start(end_with_parent)
            messages = later.enter_context(manager).Queue()
            pool = later.enter_context(ProcessPoolExecutor(workers, context, end_with_parent))
            later.enter_context(_ended_if_stopped(pool))
            more = messages, max(1, cores() // workers)
            order = [pool.submit(run_agent, config, *run, *more) for run in runs]
        bar = later.enter_context(Bar())
        waiting, done, began = set(order), dict.fromkeys(runs, 0), 0.0
        while waiting:
            ended, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            while not messages.empty():
                agent, seed, steps = messages.get()
                done[agent, seed] = min(steps, config.steps)
                began = began or time.monotonic()  # processes take seconds to start
            for future in ended:
                future.result()  # a run that failed ends the demo with its error
            parts = _under_way(done, config.steps, time.monotonic() - began)
            bar.show(parts, *_work(done, config.steps), last=not waiting)
        return [future.result() for future in order]


def _under_way(done: dict[tuple[str, int], int], steps: int, seconds: float) -> list[str]:
    """Return how many runs are done, how long the others take, and how far each has come."""
    ended = sum(made >= steps for made in done.values())
    running = [(run, made) for run, made in done.items() if 0 < made < steps]
    made, all_ = _work(done, steps)
    left = []
    if 0 < made < all_:
        left = [f"about {terminal.clock(seconds * (all_ - made) / made)} left"]
    return [
        f"{ended} of {len(done)} runs done",
        *left,
        *(f"{agent} seed {seed} {made / steps:.0%}" for (agent, seed), made in running),
    ]


def _work(done: dict[tuple[str, int], int], steps: int) -> tuple[int, int]:
    """Return the work that is done and that of all runs, their steps weighed by their cost."""
    made = sum(COST[agent] * count for (agent, _), count in done.items())
    return round(made), round(sum(COST[agent] * steps for agent, _ in done))


def _stop(again: bool) -> None:
    raise KeyboardInterrupt


@contextmanager
def _ended_if_stopped(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Kill the pool's processes on an early exit; the pool itself would wait for them."""
    try:
        yield
    except BaseException:
        for process in list(pool._processes.values()):
            process.kill()
        raise


def print_results(results: list[Result], rooms: int) -> None:
    """Print the end of every run, and what it shows."""
    headings = "", f"rooms of {rooms} (each seed)", "noise in the bonus (least to most)"
    table = Table(*headings, title="at the end: mean over the seeds")
    reached: dict[str, float] = {}
    shares: dict[str, float] = {}
    for agent in reversed(AGENTS):
        last = [result.rows[-1] for result in results if result.agent == agent]
        found = [round(row["rooms"]) for row in last]
        noise = [row["noise_share"] for row in last if "noise_share" in row]
        reached[agent] = sum(found) / len(found)
        cells = [f"{reached[agent]:.1f} ({', '.join(map(str, found))})", "-"]
        if noise:
            shares[agent] = sum(noise) / len(noise)
            cells[1] = f"{shares[agent]:.2f} ({min(noise):.2f} to {max(noise):.2f})"
        table.add_row(agent, *cells)
    terminal.print_table(table)
    for text in (
        f"Noise and curiosity: RND reached {reached[RND_CLEAN]:.1f} rooms without noise, "
        f"{reached[RND]:.1f} under it; chance {reached[CHANCE]:.1f}.",
        f"Blindness: {shares[RND]:.0%} of RND's bonus was noise, {shares[DB]:.0%} of DB's.",
        f"Exploration: under the same noise DB reached {reached[DB]:.1f} rooms. Longer runs, other "
        "noises and other bonuses: docs/results.md, docs/what-a-bonus-must-do.md.",
        "Noise in the bonus: the share of its variance that comes from redrawing the noise over "
        "the same true transitions; 0 is blind to noise, 1 sees nothing else.",
    ):
        print(terminal.wrapped(text))
