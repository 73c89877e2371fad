"""What the lab's tests share: a study, and a file in which workers leave a trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab_studies import Table, small

from nqm.lab import Study, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study() -> Study:
    return small()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file into which workers write, in whatever process."""
    path = tmp_path / "log"
    monkeypatch.setenv("NQM_TEST_LOG", str(path))
    return path


@pytest.fixture
def environment(log: Path) -> dict[str, str]:
    """For processes that a test starts: this package, and the workers of the tests."""
    found = os.pathsep.join(map(str, (ROOT, Path(__file__).parent, Path(__file__).parents[1])))
    return os.environ | {"PYTHONPATH": found, "NQM_TEST_LOG": str(log)}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """What the small study finds in one process, without interruption."""
    return run(small(), store=tmp_path_factory.mktemp("plain") / "small.db").table()
