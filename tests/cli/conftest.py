"""The fixtures of the lab's tests, and a folder of its own for each test of the command line."""

import sys

import pytest
from lab_fixtures import environment, log, study, undisturbed  # noqa: F401


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Files that a verb writes go to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path
