"""Before torch is imported: its threads must not spin on the cores that the emulators need."""

import os
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores, so one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
