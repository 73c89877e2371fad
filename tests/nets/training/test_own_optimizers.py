"""Optimizers of the user's own in a trial: a class of the package, a class of PyTorch, a function; each as one that is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nqm.nets.training.rules import method_of
from nqm.nets.training.trial import Trial
from nqm.nets.training.worker import run_trials
from nqm.types import Wrong

SOURCE = """
import torch
from nqm import HeavyBall

Mine = HeavyBall
Theirs = torch.optim.SGD
number = 3

class Neither:
    pass

def make(parameters, lr, momentum=0.0):
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_methods.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)


def steps(optimizer: str) -> int | None:
    settings = {"lr": 0.1, "momentum": 0.5}
    trial = Trial("digits", {"examples": 200}, optimizer, settings, (), 32, "train_loss", 1.0, 300, 0.02, seed=0)
    (result,) = run_trials([trial], stacking="never")
    assert result.outcome == "reached", result.message
    return result.steps["raw"]


@pytest.mark.parametrize("name", ["Mine", "Theirs", "make"])
def test_it_trains_as_the_known_one_does(name: str) -> None:
    assert steps(f"own_methods:{name}") == steps("HeavyBall") == steps("torch.SGD")


def test_what_is_no_optimizer_is_refused() -> None:
    for name in ("number", "Neither"):
        with pytest.raises(Wrong, match=rf"the optimizer own_methods:{name} must be a class of nqm\.Optimizer or"):
            method_of(f"own_methods:{name}")
    with pytest.raises(Wrong, match=r"own_methods:make has no setting 'rate'; it has lr, momentum"):
        method_of("own_methods:make").check_settings({"rate": 1}, None)
