"""Every test begins with bonuses that remember nothing."""

import pytest

from .corridor import Clock, Diary


@pytest.fixture(autouse=True)
def nothing_remembered():
    for remembered in (Clock.rewarded, Clock.trained, Diary.episodes):
        remembered.clear()


@pytest.fixture
def short_window(monkeypatch):
    """Wrappers and transforms that reward from their first update on, however early it is."""
    monkeypatch.setattr("ssedb.integrations.stepwise.WINDOW", 1)
