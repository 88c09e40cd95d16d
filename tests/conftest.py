"""Before torch is imported: its threads must not spin on the cores that the emulators need."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")
