"""Before torch is imported: its threads must not spin on the cores that the emulators need."""

import os
import signal

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores, so one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def few_games(monkeypatch):
    """Probe 4 games at once, and their transitions close together: an emulator is slow to begin."""
    monkeypatch.setattr("ssedb.transitions.COLLECT_ENVS", 4)
    monkeypatch.setattr("ssedb.transitions.COLLECT_APART", 5)
