"""``nqm doctor``: one line for each check, the exit status, JSON, and failures that are the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nqm.cli import main

OWN = """
from dataclasses import dataclass
from nqm import Optimizer, rate


@dataclass(frozen=True)
class Sound(Optimizer):
    lr: float = rate()

    def system(self, h, t):
        return [[-self.lr * h]], [-self.lr]

    def initial(self):
        return [1.0]

    def readout(self, t):
        return [1.0]

    def update(self, state, g, t):
        return (state[0] - self.lr * g,)


@dataclass(frozen=True)
class Other(Sound):
    def update(self, state, g, t):
        return (state[0] - 1.1 * self.lr * g,)


@dataclass(frozen=True)
class Failing(Sound):
    def system(self, h, t):
        return self.absent
"""


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    (tmp_path / "own_rules.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield lambda *args: CliRunner().invoke(main, ["doctor", *args])
    sys.modules.pop("own_rules", None)


def test_a_sound_optimizer_has_status_0(doctor: Callable[..., Result]) -> None:
    done = doctor("own_rules:Sound(lr=0.2)")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["passed", name] for name in ("shapes", "modes", "steps", "change", "sampling", "stability", "edge")
    ]
    assert "lr < 2;" in lines[5]


def test_a_failed_check_has_status_1(doctor: Callable[..., Result]) -> None:
    done = doctor("own_rules:Other")
    assert done.exit_code == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("failed")]
    assert line.startswith("failed   sampling")
    assert "one of the two is not the method" in line


def test_json_has_the_same(doctor: Callable[..., Result]) -> None:
    done = doctor("own_rules:Other", "--json")
    assert done.exit_code == 1
    data = json.loads(done.stdout)
    assert data["optimizer"] == "Other()"
    assert [check["check"] for check in data["checks"] if check["passed"] is False] == ["sampling"]
    assert set(data["checks"][0]) == {"check", "passed", "message"}


def test_an_exception_in_the_users_code_is_told_as_theirs(doctor: Callable[..., Result]) -> None:
    done = doctor("own_rules:Failing(0.1)")
    assert done.exit_code == 1
    assert "your code failed with AttributeError" in done.output
    assert "own_rules.py" in done.output
    assert "bug in nqm" not in done.output


def test_a_class_that_is_not_there_is_a_wrong_call(doctor: Callable[..., Result]) -> None:
    done = doctor("own_rules:Sond")
    assert done.exit_code == 2
    assert "did you mean Sound?" in done.output


def test_without_an_optimizer_it_tells_what_is_installed(doctor: Callable[..., Result]) -> None:
    done = doctor("--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert {"python", "numpy", "loops", "extra nets", "extra web", "extra cluster"} <= set(data)
    assert doctor().stdout.startswith("python ")


def test_a_missing_extra_is_told_with_what_to_install(
    doctor: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nqm.cli.doctor.find_spec", lambda name: None if name == "torch" else object())
    data = json.loads(doctor("--json").stdout)
    assert data["extra nets"] == "missing: pip install 'nqm[nets]'"
    assert data["extra web"] == "installed"
