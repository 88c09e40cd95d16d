"""How long LSVI-UCB takes: 20 seeds of RiverSwim (6 states, horizon 12 and 20), all at once.

python benchmarks/lsvi.py
"""

import argparse
import time

import numpy as np

from ssedb.theory.lsvi import Setting, run_lsvi
from ssedb.theory.mdps import river_swim


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=5000)
    episodes = parser.parse_args().episodes
    print(f"20 seeds x {episodes} episodes\n")
    print("| horizon | s | s of one core |\n|---|---|---|")
    for horizon in (12, 20):
        began, cpu = time.perf_counter(), time.process_time()
        mdp = river_swim(20, horizon=horizon)
        run_lsvi(mdp, [Setting("db", 2.8)], episodes, np.random.default_rng(0))
        took, busy = time.perf_counter() - began, time.process_time() - cpu
        print(f"| {horizon} | {took:.1f} | {busy:.1f} |", flush=True)


if __name__ == "__main__":
    main()
