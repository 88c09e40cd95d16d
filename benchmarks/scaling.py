"""How training grows with the number of environments, against the emulators alone in the same run.

    python benchmarks/scaling.py --device cuda --envs 32 64 128 256 512 1024 --out scaling.json

Eight minibatches of whole trajectories, whatever the number. Making an emulator takes 0.15 to
0.3 s, so 1024 of them need three to five minutes before anything is timed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ssedb
from ssedb.bench import side_by_side
from ssedb.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="boxing")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--envs", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--rollout-steps", type=int, default=128)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    try:
        measure(options)
    except ssedb.ConfigError as error:
        parser.error(str(error))


def measure(options: argparse.Namespace) -> None:
    rows = []
    print("| envs | pools alone | trained | trained / alone |\n|---|---|---|---|")
    for envs in options.envs:
        sizes = {
            "num_envs": envs,
            "minibatch_envs": max(envs // 8, 1),
            "rollout_steps": options.rollout_steps,
        }
        trainer = Trainer(
            ssedb.TrainConfig(
                env=options.env, device=options.device, preset=options.preset, **sizes
            )
        )
        got = side_by_side(trainer, options.updates)
        trainer.close()
        rates = {what: got.rate(what) for what in got.seconds}
        cells = [str(envs), f"{rates['alone']:,.0f}", f"{rates['trained']:,.0f}"]
        print(f"| {' | '.join(cells)} | {got.against('alone')} |", flush=True)
        rows.append({"envs": envs, **rates})
        if options.out:
            options.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
