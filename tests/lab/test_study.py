"""Studies: what a file says, what it may not say, and what makes two studies one."""

from __future__ import annotations

import datetime
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab_studies import TOML, small

import nqm
from nqm.lab import Space, Study
from nqm.lab.space import scale_of
from nqm.optimizers.base import parameters
from nqm.types import Wrong

DAY = datetime.date(1979, 5, 27)
DATA = tomllib.loads(TOML.format(worker="run_trials"))


def test_a_file_is_a_study(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML.format(worker="run_trials"))
    found = Study.load(path)
    assert found.name == "mine"
    assert found.batch_sizes == (4, 16, 64)
    assert found.max_trials is None
    assert found.most_trials("SGD") == 30
    assert found.optimizers["HeavyBall"].box["momentum"] == Space(0.5, 0.99, "1-x")
    assert Study.from_dict(found.to_dict()) == found


def test_ranges_and_values() -> None:
    table = {
        "optimizer": "KFAC", "lr": Space(0.1, 1), "damping": {"low": "2^-10", "high": 1}, "momentum": 0.9,
        "period": 10, "empirical": True, "averages": [0.99, 0.9],
    }  # fmt: skip
    study = small(optimizers={"KFAC 0.9": table})
    entry = study.optimizers["KFAC 0.9"]
    assert entry.box == {"lr": Space(0.1, 1), "damping": Space(2**-10, 1)}
    assert entry.averages == (0.9, 0.99)
    trial = study.trial("KFAC 0.9", 16, {"lr": 0.5, "damping": 0.1}, limit=9)
    assert trial.optimizer == "KFAC"
    assert trial.settings == {"lr": 0.5, "damping": 0.1, "momentum": 0.9, "period": 10, "empirical": True}
    assert (trial.limit, trial.max_steps, trial.seed) == (9, 4000, 0)
    assert study.trial("KFAC 0.9", 16, {}, limit=5000).limit is None


def test_budgets_of_steps() -> None:
    study = small(max_examples=16_000)
    assert [study.steps_at(size) for size in study.batch_sizes] == [4000, 1000, 250]
    assert small(max_examples=2).steps_at(4) == 1


MORE: dict[str, Any] = {
    "trials": 9, "seeds": 1, "batch_sizes": [8], "max_trials": 50, "name": "other", "refine": 3, "searches": 4,
}  # fmt: skip
OTHER: dict[str, Any] = {
    "workload": "two modes", "target": 0.1, "metric": "val_loss", "options": {"modes": 3}, "max_steps": 5000, "growth": 0.1,
    "points": "fresh", "round": 5, "seed": 1, "worker": "logged", "max_examples": 10**6,
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_more_of_the_same_is_the_same_study(name: str) -> None:
    assert small(**{name: MORE[name]}).key == small().key


@pytest.mark.parametrize("name", OTHER)
def test_another_study(name: str) -> None:
    assert small(**{name: OTHER[name]}).key != small().key


def test_another_optimizer_leaves_the_others_alone() -> None:
    more = small(optimizers=DATA["optimizers"] | {"Adam": {"lr": {"low": 0.1, "high": 1}}})
    assert more.key != small().key
    assert more.key_of("SGD") == small().key_of("SGD")
    wider = small(optimizers={"SGD": {"lr": {"low": 1e-3, "high": 5}}})
    assert wider.key_of("SGD") != small().key_of("SGD")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"target": "soon"}, r"study\.target"),
        ({"target": float("nan")}, r"study\.target must be a finite number"),
        ({"trials": 0}, r"study\.trials must be a whole number of 1 or more, got 0"),
        ({"trials": 2.5}, r"study\.trials must be a whole number"),
        ({"trials": True}, r"study\.trials must be a whole number of 1 or more, got true"),
        ({"trials": 1e300}, r"study\.trials must be a whole number of 1 or more, 1,000,000 at most, got 1e\+300"),
        ({"target": DAY}, r"study\.target must be a finite number, got 1979-05-27$"),
        ({"growth": 1e300}, r"study\.growth .* 1,000,000 at most"),
        ({"options": {"examples": math.inf}}, r"study\.options\.examples must be a finite number, .* got inf"),
        ({"options": {"deep": {"day": [1, DAY]}}}, r"study\.options\.deep\.day must be .* got 1979-05-27"),
        ({"batch_sizes": [1e300]}, r"study\.batch_sizes .* at most"),
        ({"batch_sizes": [True]}, r"study\.batch_sizes must be a whole number of 1 or more, got true"),
        ({"max_trials": 2}, r"study\.max_trials"),
        ({"batch_sizes": []}, r"study\.batch_sizes"),
        ({"batch_sizes": [8, 8]}, r"study\.batch_sizes must differ"),
        ({"batch_sizes": "8.."}, r"study\.batch_sizes"),
        ({"batch_sizes": [2.5]}, r"study\.batch_sizes must be a whole number"),
        ({"points": "random"}, r"study\.points must be one of same, fresh"),
        ({"workload": ""}, r"study\.workload must be text"),
        ({"options": 3}, r"study\.options must be a table"),
        ({"growth": -1}, r"study\.growth"),
        ({"trails": 3}, r"'trails' \(did you mean trials\?\)"),
        ({"optimizers": {}}, r"\[optimizers.NAME\]"),
        ({"optimizers": {"SGD": 3}}, r"optimizers\.SGD must be a table"),
        ({"optimizers": {"SGD": {"lr": {"low": 1}}}}, r"optimizers\.SGD\.lr needs low and high"),
        ({"optimizers": {"SGD": {"lr": {"low": 1, "hi": 2}}}}, r"key in optimizers\.SGD\.lr called 'hi'"),
        ({"optimizers": {"SGD": {"lr": {"low": 2, "high": 1}}}}, r"optimizers\.SGD\.lr: low must be below high"),
        ({"optimizers": {"SGD": {"lr": {"low": "x", "high": 1}}}}, r"optimizers\.SGD\.lr\.low"),
        ({"optimizers": {"SGD": {"lr": [1, 2]}}}, r"optimizers\.SGD\.lr must be a range"),
        ({"optimizers": {"SGD": {"lr": math.inf}}}, r"optimizers\.SGD\.lr must be a range .* or a finite number.*; got inf"),
        ({"optimizers": {"SGD": {"lr": DAY}}}, r"optimizers\.SGD\.lr .* got 1979-05-27"),
        ({"optimizers": {"": {"lr": 1}}}, r"an optimizer needs a label, as in \[optimizers\.SGD\]"),
        ({"optimizers": {"SGD": {"optimizer": 3}}}, r"optimizers\.SGD\.optimizer"),
        ({"optimizers": {"SGD": {"averages": 0.9}}}, r"optimizers\.SGD\.averages must be a list"),
        ({"optimizers": {"SGD": {"averages": [1.0]}}}, r"optimizers\.SGD\.averages must be different decays"),
    ],
    ids=str,
)  # fmt: skip
def test_refused_by_name(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Wrong, match=why) as caught:
        small(**change)
    (key,) = change
    assert str(caught.value.argument).startswith("optimizers" if key == "optimizers" else f"study.{key}")


def test_the_argument_of_an_error_is_the_key_in_the_file() -> None:
    with pytest.raises(Wrong) as caught:
        small(optimizers={"SGD": {"lr": {"low": 2, "high": 1}}})
    assert caught.value.argument == "optimizers.SGD.lr"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"batch_sizes": [4, 16, 64]}, r"study\.batch_sizes must be \(4, 16, 64\), got \[4, 16, 64\]"),
        ({"batch_sizes": "4..64..4"}, r"study\.batch_sizes must be \(4, 16, 64\), got '4\.\.64\.\.4'"),
        ({"optimizers": {"SGD": {"lr": 0.1}}}, "optimizers must be {'SGD': Entry"),
        ({"trials": 0}, r"study\.trials must be a whole number of 1 or more"),
        ({"trials": 31, "max_trials": 30}, r"study\.max_trials must be at least trials = 31, got 30"),
    ],
    ids=str,
)
def test_a_study_holds_values_in_one_form(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Wrong, match=why):
        replace(small(), **change)


EARLIER_DECAYS = ("momentum", "decay", "beta", "beta1", "beta2", "ema_decay", "factor_decay", "alpha", "rho")
"""Names of settings that version 0.1.0 searched in the logarithm of 1 - x."""


@pytest.mark.parametrize(
    "optimizer", ["SGD", "HeavyBall", "Nesterov", "Adam", "AdamW", "RMSProp", "NormalisedSGD", "Sign"]
)
def test_scales_that_a_class_states_are_those_of_earlier_versions(optimizer: str) -> None:
    """They are part of a study's hash, and were chosen by the names of settings alone."""
    for name in parameters(getattr(nqm, optimizer)()):
        assert scale_of(name, optimizer) == ("1-x" if name in EARLIER_DECAYS else "log")


@pytest.mark.parametrize("name", [*EARLIER_DECAYS, "lr", "weight_decay", "eps", "damping", "mine"])
@pytest.mark.parametrize("optimizer", ["KFAC", "torch.SGD", "Adadelta", "Muon", "of_a_worker"])
def test_scales_of_settings_that_no_class_states_are_those_of_earlier_versions(name: str, optimizer: str) -> None:
    assert scale_of(name, optimizer) == ("1-x" if name in EARLIER_DECAYS else "log")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", r"needs a table \[study\]"),
        ("[study\n", "is not a TOML file"),
        ("[study]\nworkload = 'digits'", r"\[study\] needs target"),
        ("[study]\nworker = 'run'\nworkload = 'a'\ntarget = 1\nbatch_sizes = [1]", r"study\.worker must be module:function"),
        (f"[study]\nworkload = 'digits'\nbatch_sizes = [1]\ntarget = 1{'0' * 400}", r"study\.target must be a finite number"),
        ("[optimisers.SGD]", r"'optimisers' \(did you mean optimizers\?\)"),
    ],
    ids=["empty", "broken", "target", "worker", "huge", "table"],
)  # fmt: skip
def test_files_that_are_refused_name_the_file(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"wrong\.toml.*{why}"):
        Study.load(path)
