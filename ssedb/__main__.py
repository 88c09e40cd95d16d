"""`python -m ssedb`."""

import os
import sys
from pathlib import Path

from ssedb.cli import main

# Python looks for modules in the current folder first. A run's settings may name modules, so only
# installed packages and PYTHONPATH count, as for the command `ssedb`; or the clone that this is of.
here = os.getcwd()
if sys.path[:1] == [here] and Path(__file__).resolve().parent.parent != Path(here).resolve():
    del sys.path[0]
sys.exit(main())
