"""Versions of source: a changed model is another version, a changed comment is not; and where modules are looked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lab_studies import small

import nqm
from nqm.lab import Results, Study, Trial, run
from nqm.lab.source import VERSION_LENGTH, changed, essence, unversioned, versioned
from nqm.types import Wrong

WORKER = '''
"""A worker."""
import helper{tag}
from nqm.lab import Result

def run_trials(trials, *, stacking):
    # each takes the same
    return [Result(t.key, "reached", {{"raw": helper{tag}.STEPS}}, {{}}, [], 0.0, "", "") for t in trials]
'''
STUDY = """
[study]
workload = "mine"
worker = "worker{tag}:run_trials"
target = 1
batch_sizes = [8]
trials = 2
refine = 0
searches = 1
seeds = 0
[optimizers.SGD]
lr = {{low = 0.1, high = 1}}
"""


@pytest.fixture
def mine(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A study with a worker of its own beside it, whose module imports another."""
    tag = f"{abs(hash(request.node.name)) % 10**9}"
    (tmp_path / f"worker{tag}.py").write_text(WORKER.format(tag=tag))
    (tmp_path / f"helper{tag}.py").write_text("STEPS = 10\n")
    (tmp_path / "mine.toml").write_text(STUDY.format(tag=tag))
    return tmp_path / "mine.toml"


def helper(study: Path) -> Path:
    return next(study.parent.glob("helper*.py"))


def version(study: Path) -> str:
    return versioned(Study.load(study), study.parent).version


def test_code_counts_and_words_do_not(mine: Path) -> None:
    before = version(mine)
    worker = next(mine.parent.glob("worker*.py"))
    worker.write_text(
        worker.read_text().replace("A worker.", "The worker.").replace("# each takes", "# all take") + "\n\n"
    )
    assert version(mine) == before
    helper(mine).write_text("STEPS = 11\n")  # a module that the worker imports
    assert version(mine) != before


def test_a_version_of_ones_own_stands_for_the_source(mine: Path) -> None:
    mine.write_text(mine.read_text().replace("[study]", "[study]\nversion = 2"))
    assert version(mine) == "2"
    helper(mine).write_text("STEPS = 11\n")
    assert version(mine) == "2"
    assert unversioned(versioned(Study.load(mine), mine.parent)).version == ""


@pytest.mark.slow
def test_a_changed_model_does_not_return_old_results(mine: Path) -> None:
    """In processes of their own, because a process imports a module once; the study is run from another folder."""
    call = [sys.executable, "-m", "nqm", "lab", "run", str(mine), "--on", "here", "--json"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}

    def steps() -> str:
        done = subprocess.run(call, env=env, cwd="/", capture_output=True, text=True, check=True)
        return done.stdout

    assert '"steps": 10' in steps()
    assert changed(Results.open(mine)) == ""
    helper(mine).write_text("STEPS = 11\n")
    assert "has changed since" in changed(Results.open(mine))
    assert Results.open(mine).points[0].steps == 10  # what is stored can still be read
    assert '"steps": 11' in steps()
    helper(mine).write_text("STEPS = 10\n")
    assert '"steps": 10' in steps()  # the trials of the first source are still there


def test_a_missing_module_is_said_with_the_places(mine: Path) -> None:
    study = Study.load(mine)
    with pytest.raises(
        Wrong, match=rf"cannot find the module 'worker\d+' of .*: looked in {os.sep}, .*, and on Python's path"
    ):
        versioned(study, Path(os.sep))


@pytest.mark.slow
def test_workloads_of_the_package_have_versions() -> None:
    root = Path(__file__).parents[2]
    digits, fashion = (Study.load(root / "examples" / "studies" / f"{n}.toml") for n in ("digits", "fashion_cnn"))
    assert versioned(digits).version != versioned(fashion).version
    assert versioned(digits).key != digits.key
    trial = Trial("digits", {}, "SGD", {"lr": 1}, (), 8, "train_loss", 0.1, 10, 0.02, 0)
    other = Trial("digits", {}, "SGD", {"lr": 1}, (), 8, "train_loss", 0.1, 10, 0.02, 0, version="1")
    assert trial.key != other.key


def test_an_optimizer_of_ones_own_has_a_version(mine: Path) -> None:
    (mine.parent / "own_optimizer.py").write_text("def make(parameters, lr): ...\n")
    text = mine.read_text() + '\n[optimizers.own]\noptimizer = "own_optimizer:make"\nlr = {low = 0.1, high = 1}\n'
    mine.write_text(text)
    before = versioned(Study.load(mine), mine.parent)
    assert before.optimizers["own"].version
    assert not before.optimizers["SGD"].version
    (mine.parent / "own_optimizer.py").write_text("def make(parameters, lr, momentum): ...\n")
    after = versioned(Study.load(mine), mine.parent)
    assert before.trial("own", 8, {"lr": 1}).key != after.trial("own", 8, {"lr": 1}).key
    assert before.trial("SGD", 8, {"lr": 1}).key == after.trial("SGD", 8, {"lr": 1}).key


KEYS = """
from nqm.lab import Study
from nqm.lab.source import versioned
rates = {"lr": {"low": 0.1, "high": 1}}
table = {"workload": "digits", "target": 1, "batch_sizes": [8]}
optimizers = {name: rates for name in ("SGD", "Adam", "KFAC", "Muon", "RAdam")}
study = versioned(Study.from_dict({"study": table, "optimizers": optimizers}))
print(*(study.trial(name, 8, {"lr": 1}).key for name in study.optimizers))
"""
EVERY = {"SGD", "Adam", "KFAC", "Muon", "RAdam"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "concerned"),
    [
        ("nets/training/rules/kfac.py", {"KFAC"}),
        ("nets/training/kronecker.py", {"KFAC"}),
        ("optimizers/adam.py", {"Adam"}),
        ("nets/training/rules/muon.py", {"Muon"}),
        ("nets/training/rules/torch_optim.py", {"Muon", "RAdam"}),
        ("nets/training/groups.py", EVERY),
        ("nets/training/stacks.py", EVERY),
        ("show/chart.py", set[str]()),
    ],
)
def test_a_changed_rule_concerns_the_trials_of_its_optimizer(tmp_path: Path, file: str, concerned: set[str]) -> None:
    """In a copy of the package: the keys of trials before a line of code is added to a file, and after."""
    shutil.copytree(Path(nqm.__file__).parent, tmp_path / "nqm", ignore=shutil.ignore_patterns("__pycache__"))

    def keys() -> list[str]:
        env = os.environ | {"PYTHONPATH": str(tmp_path)}
        call = [sys.executable, "-c", KEYS]
        return subprocess.run(call, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    before = keys()
    with (tmp_path / "nqm" / file).open("a") as opened:
        opened.write("\nADDED = 1\n")
    names = ("SGD", "Adam", "KFAC", "Muon", "RAdam")
    changes = {name for name, one, two in zip(names, before, keys(), strict=True) if one != two}
    assert changes == concerned


def test_a_change_is_said_also_where_the_workload_has_a_version_of_its_own(tmp_path: Path) -> None:
    """A version that the user set stays; one that is a hash, and is not that of the source now, is told."""
    table = {"workload": "digits", "target": 1, "batch_sizes": [8], "version": "mine"}
    study = versioned(Study.from_dict({"study": table, "optimizers": {"SGD": {"lr": {"low": 0.1, "high": 1}}}}))
    assert study.version == "mine"
    assert len(study.optimizers["SGD"].version) == VERSION_LENGTH
    results = Results(study, (), tmp_path / "x.db", frozenset(), {})
    assert changed(results) == ""
    other = replace(study.optimizers["SGD"], version="0" * VERSION_LENGTH)
    assert "has changed since" in changed(replace(results, study=replace(study, optimizers={"SGD": other})))


def test_essence_keeps_strings_that_are_no_docstrings() -> None:
    source = 'def f():\n    """Words."""\n    return "# not a comment"\n'
    assert essence(source) == 'def f():\n    return "# not a comment"'


def test_a_study_as_an_object_is_looked_for_on_the_path(tmp_path: Path) -> None:
    found = run(small(), store=tmp_path / "small.db")
    assert found.study.version
    assert isinstance(found.study, Study)
