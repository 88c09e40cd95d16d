"""Score a uniform random policy on Atari games under the preprocessing of training.

    python benchmarks/random_references.py --episodes 100 --processes 16 --out references.json

`ssedb/compare/random_references.json`, the zero of normalised scores, was measured with it.
Episodes begin with up to 30 no-ops and end after 4500 agent steps at most, as in training. Every
environment plays the same number of whole episodes, so that short ones are not favoured. Each
process plays one batch of a game at a time; the file is written anew whenever a game is done.
Other games that the file holds already, measured with the same emulator, stay.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from importlib.metadata import version
from pathlib import Path

import torch

import ssedb

ENVS, EACH = 10, 2
BATCH = ENVS * EACH  # episodes
EXTRA_GAMES = (
    "montezuma_revenge", "space_invaders", "freeway", "pong", "beam_rider", "chopper_command",
    "video_pinball", "zaxxon",
)  # fmt: skip


def play(task: tuple[str, int]) -> tuple[str, list[float], list[int]]:
    """Play a game with a seed.

    Returns the game, and scores and lengths of `EACH` episodes of each environment.
    """
    game, seed = task
    torch.set_num_threads(1)
    env = ssedb.make_env(game, num_envs=ENVS, noise="none", seed=seed)
    generator = torch.Generator().manual_seed(seed)
    scores = torch.zeros(EACH, ENVS, dtype=torch.float64)
    lengths = torch.zeros(EACH, ENVS, dtype=torch.int64)
    finished = torch.zeros(ENVS, dtype=torch.int64)
    env.reset()
    while (playing := (finished < EACH).nonzero()[:, 0]).numel():
        step = env.step(torch.randint(env.num_actions, (ENVS,), generator=generator))
        scores[finished[playing], playing] += step.rewards[playing].double()
        lengths[finished[playing], playing] += 1
        finished += step.dones
    env.close()
    return game, scores.flatten().tolist(), lengths.flatten().tolist()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="+", default=[*ssedb.GAMES, *EXTRA_GAMES])
    parser.add_argument(
        "--episodes", type=int, default=100, help=f"of each game, a multiple of {BATCH}"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("random_references.json"))
    options = parser.parse_args()
    if options.episodes < BATCH or options.episodes % BATCH:
        parser.error(f"--episodes {options.episodes}: must be a multiple of {BATCH}")
    if options.processes < 1:
        parser.error(f"--processes {options.processes}: must be 1 or more")
    played: dict[str, tuple[list[float], list[int]]] = {game: ([], []) for game in options.games}
    tasks = [(game, seed) for game in played for seed in range(options.episodes // BATCH)]
    about = {
        "policy": "uniform random",
        "preprocessing": "skip 4, up to 30 no-ops, at most 4500 agent steps, "
        "no sticky actions, scores unclipped",
        "ale_py": version("ale-py"),
    }
    found = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    same = {key: found.get(key) for key in about} == about
    measured: dict[str, dict[str, float]] = found["games"] if same else {}
    print("| game | mean | standard error | episodes | mean length |")
    print("|---|---|---|---|---|")
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for game, some_scores, some_lengths in pool.imap_unordered(play, tasks):
            scores, lengths = played[game]
            scores += some_scores
            lengths += some_lengths
            if len(scores) < options.episodes:
                continue
            measured[game] = {
                "mean": round(statistics.fmean(scores), 4),
                "standard_error": round(statistics.stdev(scores) / len(scores) ** 0.5, 4),
                "episodes": len(scores),
                "mean_length": round(statistics.fmean(lengths), 1),
            }
            print(
                f"| {game} | {' | '.join(str(value) for value in measured[game].values())} |",
                flush=True,
            )
            games = dict(sorted(measured.items()))
            options.out.write_text(
                json.dumps({**about, "games": games}, indent=2) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
