"""Fixtures of several analyses."""

import pytest


@pytest.fixture
def few_games(monkeypatch):
    """Probe 4 games at once, and their transitions close together: an emulator is slow to begin."""
    monkeypatch.setattr("ssedb.analysis.transitions.COLLECT_ENVS", 4)
    monkeypatch.setattr("ssedb.analysis.transitions.COLLECT_APART", 5)
