"""Minutes until an agent without reward first averages 10 at Breakout over its last 100 games.

    python benchmarks/time_to_score.py --out time-to-score.json

Three trainers take their turn on the same machine, each in a process of its own: our recipe
(`--fidelity ours`), DB as its paper has it (`--fidelity paper`), and a trainer of PPO with RND
after a public single file (benchmarks/cleanrl_rnd.py says what differs). All have 128 environments
x 128 steps, the same emulators with the same settings, and no reward but their own. The score is of
whole games.

The clock starts with the process: imports, emulators, compiling and the random agent's look around
count, as they do for a user. `start` is when training begins. A trainer that is not there after
`--minutes` is reported with what it has reached. `--trainers` takes some of them, and adds their
rows to those that `--out` holds already.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

GAMES = 100
"""Games that the score averages over."""
Progress = Generator[tuple[int, dict[str, Any]], None, None]
"""Steps and scores, at the start and after every iteration."""


def ssedb_trainer(fidelity: str, options: argparse.Namespace) -> Progress:
    """Train with this package, as `ssedb train` does but without a folder."""
    import ssedb
    from ssedb.collect.environments import look_around
    from ssedb.trainer import Trainer

    config = ssedb.TrainConfig(
        env=options.env, fidelity=fidelity, seed=options.seed, device=options.device
    )
    if options.small:
        sizes = dict(num_envs=4, rollout_steps=8, minibatch_envs=4, obs_norm_steps=32)
        config = dataclasses.replace(config, ppo_epochs=1, bonus_epochs=1, **sizes)
    seen = look_around(config)
    trainer = Trainer(config)
    trainer.fit_observations(seen)
    try:
        yield 0, trainer.scores.summary()
        while True:
            # On a GPU the metrics of an iteration come with the next one.
            metrics = trainer.iterate()
            if metrics:
                yield metrics["steps"], metrics
    finally:
        trainer.close()


def cleanrl(options: argparse.Namespace) -> Progress:
    """Train with the public trainer."""
    import torch
    from cleanrl_rnd import Settings, train

    from ssedb.engine.host import pick_device

    sizes = dict(num_envs=4, num_steps=8, num_iterations_obs_norm_init=1, update_epochs=1)
    settings = Settings(**sizes) if options.small else Settings()
    device: torch.device = pick_device(options.device)
    for steps, scores in train(options.env, device, options.seed, settings):
        yield steps, scores.summary()


TRAINERS: dict[str, Callable[[argparse.Namespace], Progress]] = {
    "ours": lambda options: ssedb_trainer("ours", options),
    "paper": lambda options: ssedb_trainer("paper", options),
    "cleanrl-rnd": cleanrl,
}


def follow(name: str, options: argparse.Namespace, began: float, pipe: Any) -> None:
    """Train until the score or the time is reached; send the row."""
    row: dict[str, Any] = {"trainer": name, "env": options.env, "seed": options.seed}
    row |= {"goal": options.score, "reached": False, "curve": []}
    training = TRAINERS[name](options)
    for steps, scores in training:
        minutes = (time.time() - began) / 60
        row.setdefault("start", minutes)
        score = scores["score"] if scores["episodes"] >= GAMES else None
        row["curve"].append([round(minutes, 3), steps, score])
        row |= {"minutes": minutes, "steps": steps, "score": score, "games": scores["episodes"]}
        row["reached"] = score is not None and score >= options.score
        if row["reached"] or (steps and minutes >= options.minutes):
            break
    from ssedb.engine.host import machine, pick_device

    pipe.send(row | {"machine": machine(pick_device(options.device))})
    training.close()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one trainer in a process of its own; return its row."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=follow, args=(name, options, time.time(), theirs)
    )
    process.start()
    theirs.close()
    try:
        row = ours.recv()
    except EOFError:
        raise SystemExit(f"{name} failed; its error is above") from None
    finally:
        process.join(10)  # emulators' threads may take their time
        process.kill()
    return row


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    ours = next((row for row in rows if row["trainer"] == "ours" and row["reached"]), None)
    print("| trainer | minutes to the score | of it start | steps | steps/s | score | / ours |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        more = "" if row["reached"] else "> "
        ratio = f"{more}{row['minutes'] / ours['minutes']:.1f}" if ours else "-"
        rate = row["steps"] / max(60 * (row["minutes"] - row["start"]), 1e-9)
        score = "-" if row["score"] is None else f"{row['score']:.2f}"
        cells = [f"{more}{row['minutes']:.2f}", f"{row['start']:.2f}", f"{row['steps']:,}"]
        print(f"| {row['trainer']} | {' | '.join(cells)} | {rate:,.0f} | {score} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--score", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=30.0, help="limit of each (default 30)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="a smoke test: few environments")
    parser.add_argument("--out", type=Path, help="write the rows as JSON, with curves")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out and options.out.exists() else []
    rows = {row["trainer"]: row for row in found}
    for name in options.trainers:
        rows[name] = measure(name, options)
        print(json.dumps({k: v for k, v in rows[name].items() if k != "curve"}), flush=True)
        ordered = [rows[name] for name in TRAINERS if name in rows]
        if options.out:
            options.out.write_text(json.dumps(ordered))
    print()
    show(ordered)


if __name__ == "__main__":
    main()
