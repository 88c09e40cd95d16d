"""How long LSVI-UCB takes: 20 seeds x 5000 episodes of RiverSwim (6 states, horizon 12 and 20), all seeds at once."""

import argparse
import time

import numpy as np

from ssedb.theory.lsvi import Setting, run_lsvi
from ssedb.theory.mdps import river_swim

argparse.ArgumentParser(description=__doc__).parse_args()
for horizon in (12, 20):
    began, cpu = time.perf_counter(), time.process_time()
    run_lsvi(river_swim(20, horizon=horizon), [Setting("db", 2.8)], 5000, np.random.default_rng(0))
    took = f"{time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s of one core"
    print(f"RiverSwim, horizon {horizon}, 20 seeds x 5000 episodes: {took}")
