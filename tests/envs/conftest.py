"""Fixtures of several environments."""

import pytest

from tests.outside import forget_package, write_package


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """A module of environments that nothing here has imported."""
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    forget_package()
