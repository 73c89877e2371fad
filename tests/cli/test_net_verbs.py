"""The verbs for networks: their examples in order, what they print, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from cli.shell import BROKEN, call, told_without_output

from nqm.cli import main
from nqm.nets.fitting.model import Fit

MINE = """
import torch
from torch import nn
from nqm.nets import Network

def network():
    torch.manual_seed(0)
    return Network(nn.Linear(4, 3), nn.functional.cross_entropy, (torch.randn(30, 4), torch.arange(30) % 3))

def other():
    return 3

def broken():
    return {}["weights"]

def wrong():
    return int("many")

def leaves():
    raise SystemExit(3)

def asks(x):
    return x

def unlabelled():
    y = torch.arange(30) % 3
    y[20] = 7
    return Network(nn.Linear(4, 3), lambda o, t: nn.functional.cross_entropy(o, t), (torch.randn(30, 4), y))
"""


def announced(stderr: str) -> str:
    """What follows the sentence on passes, time and memory with which a fit begins."""
    first, _, rest = stderr.partition("\n")
    assert re.fullmatch(
        r"\d+ products and \d+ gradients over all the data, about .+; about .+ beside the activations", first
    )
    return rest


def save_adamw(path: Path) -> None:
    """A checkpoint with the state of an AdamW that has made a step with the parameters of ``mine:network``."""
    import torch

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    torch.save({"step": 1, "optimizer": optimizer.state_dict()}, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verbs")


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    (folder / "mine.py").write_text(MINE)
    (folder / "halted.py").write_text("y = x\n")
    (folder / "bytes.jsonl").write_bytes(b"\x93\xff\x00")
    save_adamw(folder / "checkpoint.pt")
    if not (folder / "digits.json").exists():
        result = call("fit", "digits")
        assert result.exit_code == 0, result.output
        assert announced(result.stderr) == "wrote digits.json\n"
    yield folder
    sys.modules.pop("mine", None)  # other tests have a module of that name


EXAMPLES = [e for verb in ("fit", "predict", "advise", "check") for e in main.commands[verb].examples]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("line", [e for e in EXAMPLES if "fashion" not in e])  # those take minutes
def test_examples_run(line: str) -> None:
    result = call(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout


@pytest.mark.slow
def test_advice_is_verified_and_timed(here: Path) -> None:
    """The promise, the real steps and the seconds are in the JSON, and the sentence is in the text."""
    line = ("advise", "digits.json", "-b", "64", "--target", "0.14", "--optimizer", "SGD", "--batch-sizes", "64")
    result = call(*line, "--verify", "digits", "--seeds", "2", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verified"]["promised"] == found["steps"]
    assert len(found["verified"]["hits"]) == 2
    assert all(row["seconds"] > 0 for row in found["table"])
    text = call(*line, "--verify", "digits", "--seeds", "2", "--cadence", "5").stdout
    assert "trained: 2 trainings first dipped below 0.14 after" in text
    assert "looked at every 5 steps" in text


def test_ctrl_c_while_advice_is_found_is_a_line_and_status_130(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("nqm.nets.fitting.arrivals"), "tuned_for_hits", interrupted)
    result = call("advise", "digits.json", "-b", "64", "--target", "0.14", "--optimizer", "SGD", "--batch-sizes", "64")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr.strip() == "Error: interrupted"


def test_a_fit_of_a_users_own_function(here: Path) -> None:
    result = call("fit", "mine:network", "--out", "mine.npz", "--json", "--descent", "5")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["parameters"] == 15
    assert Fit.load(here / "mine.npz").provenance.network == "Linear"


def test_kfac_by_the_same_verbs(here: Path) -> None:
    """A fit in its metric, a prediction and advice; another optimizer, another damping and an unknown setting are refused."""
    call_fit = ("fit", "mine:network", "--descent", "5", "--no-test", "--out", "kfac.json")
    result = call(*call_fit, "--optimizer", "KFAC(damping=0.1)", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["metric"]["optimizer"] == "KFAC(damping=0.1)"
    ahead = call("predict", "kfac.json", "KFAC(0.05, momentum=0.5, damping=0.1)", "-b", "8", "--steps", "5", "--json")
    assert ahead.exit_code == 0, ahead.output
    assert json.loads(ahead.stdout)["optimizer"] == "KFAC(lr=0.05, momentum=0.5, damping=0.1)"
    for optimizer, sentence in (
        ("SGD(0.1)", "in the metric of KFAC"),
        ("KFAC(0.1)", "damping of KFAC(lr=0.1) differs"),
        ("KFAC(0.1, dampening=1)", "no argument of KFAC called 'dampening'"),
        ("KFAC(damping=0.1)", "lr"),
    ):
        refused = call("predict", "kfac.json", optimizer, "-b", "8", "--steps", "5")
        assert refused.exit_code == 2
        assert sentence in " ".join(refused.stderr.split()), refused.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("fit", "mnist"), "there is no workload 'mnist'"),
        (("fit", "mine:other"), "returned int"),
        (("fit", "mine:none"), "there is no name in mine called 'none'"),
        (("fit", "mine.py:network"), "names a file; go to its folder and name the module: mine:network"),
        (("fit", "./mine:network"), "names a file; go to its folder and name the module: mine:network"),
        (("fit", "digits", "--examples", "-5"), "'--examples': it must be a whole number from 2, got -5"),
        (("fit", "digits", "--train-steps", "-1"), "'--train-steps': it must be a whole number from 0, got -1"),
        (("check", "digits", "--rates", "0"), "rates must be positive"),
        (("check", "digits", "SGD"), "Invalid value for '[OPTIMIZER]...': check needs every hyper-parameter set"),
        (("check", "digits", "Adam(0.1)"), "Invalid value for '[OPTIMIZER]...': Adam(lr=0.1) is not linear"),
        (("check", "digits", "--batch-sizes", "0.5"), "'--batch-sizes': training needs whole batch sizes"),
        (("check", "digits", "--store", "mine.py"), "'--store': 'mine.py' is not a file of trainings that nqm wrote"),
        (("fit", "digits", "--memory", "zero"), "it must be a number of bytes, such as 8G or 500M, got 'zero'"),
        (("fit", "digits", "--memory", "8X"), "it must be a number of bytes, such as 8G or 500M, got '8X'"),
        (("check", "digits", "--store", "bytes.jsonl"), "'bytes.jsonl' is not a file of trainings that nqm wrote"),
        (("fit", "nowhere:network"), "cannot import 'nowhere'"),
        (("fit", "mine:network", "--train-steps", "3"), "is for built-in workloads"),
        (("predict", "digits.json", "-b", "64", "--steps", "3"), "Missing argument 'OPTIMIZER'"),
        (("predict", "digits.json", "SGD(0.1)", "-b", "64"), "Missing option '--steps'"),
        (("advise", "digits.json", "-b", "64"), "Missing option '--target'"),
        (("advise", "digits.json", "-b", "64", "--target", "1k"), "target 1000 is not below the loss"),
        (
            ("advise", "digits.json", "-b", "64", "--target", "0.1", "--optimizer", "Adam"),
            "'--optimizer': Adam() is predicted from",
        ),
        (
            ("advise", "digits.json", "-b", "64", "--target", "0.1", "--seconds-per-step", "64:x"),
            "'--seconds-per-step'",
        ),
        (("advise", "digits.json", "-b", "64", "--target", "0.1", "--verify", "mnist"), "there is no workload 'mnist'"),
        (("advise", "mine.py", "-b", "64", "--target", "0.1"), "is not a fit"),
        (("check", "digits", "--store", "-"), "must be the name of a file"),
        (("check", "digits", "SGD(0.1)", "--fit", "mine.py"), "is not a fit"),
        (("predict", "mine.py", "SGD(0.1)", "-b", "64", "--steps", "3"), "is not a fit"),
        (("predict", "digits.json", "SGD", "-b", "64", "--steps", "3"), "lr"),
        (("check", "digits", "--fit", "digits.json", "--train-steps", "5"), "not of the same checkpoint"),
    ],
)
def test_wrong_calls_get_one_sentence(args: tuple[str, ...], sentence: str) -> None:
    result = call(*args)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_check_in_which_nothing_is_predicted_says_so() -> None:
    result = call("check", "digits", "SGD(1000)", "--fit", "digits.json", "--batch-sizes", "64", "--steps", "2")
    assert result.exit_code == 0, result.output
    assert "nothing was predicted: every setting is outside the stable region" in result.stdout


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("fit", "mine:broken"), "mine:broken failed with KeyError: 'weights' (mine.py, line 14)"),
        (
            ("fit", "mine:wrong"),
            "mine:wrong failed with ValueError: invalid literal for int() with base 10: 'many' (mine.py",
        ),
        (("fit", "mine:leaves"), "mine:leaves failed with SystemExit: 3 (mine.py"),
        (("fit", "mine:asks"), "mine:asks failed with TypeError: asks() missing 1 required positional argument: 'x'"),
        (("fit", "mine:unlabelled"), "the loss of examples 0 to 29 failed with IndexError: Target 7 is out of bounds"),
        (("check", "mine:unlabelled", "SGD(0.1)"), "failed with IndexError: Target 7 is out of bounds. (mine.py"),
        (("fit", "halted:network"), "importing halted failed with NameError: name 'x' is not defined (halted.py"),
    ],
)
def test_exceptions_in_the_users_code_are_told_as_theirs(args: tuple[str, ...], sentence: str) -> None:
    result = call(*args)
    assert result.exit_code == 1
    assert sentence in " ".join(result.stderr.split())
    assert "Error: internal" not in result.stderr


def test_no_answer_is_status_one() -> None:
    unstable = call("predict", "digits.json", "SGD(9)", "-b", "64", "--steps", "30")
    assert unstable.exit_code == 1
    assert "outside the stable region" in unstable.stdout
    assert call("advise", "digits.json", "-b", "64", "--target", "1e-6").exit_code == 1


def test_a_fit_goes_to_the_name_of_its_function_unless_told_otherwise(here: Path) -> None:
    assert announced(call("fit", "mine:network", "--descent", "5").stderr) == "wrote network.json\n"
    again = call("fit", "mine:network", "--descent", "6")
    assert announced(again.stderr) == "wrote network.json\n"  # in place of the earlier fit
    descent = Fit.load(here / "network.json").descent
    assert descent is not None
    assert descent.steps[-1] == 6


def test_nothing_is_written_over_that_is_not_a_fit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nqm.nets.workloads.network_of", None)  # The network is not even made.
    (here / "other.json").write_text('{"mine": 1}')
    result = call("fit", "mine:other")
    assert result.exit_code == 2
    assert "Invalid value for '--out': 'other.json' exists and is not a fit; name another file" in result.stderr
    assert (here / "other.json").read_text() == '{"mine": 1}'
    (here / "folder.json").mkdir(exist_ok=True)
    assert "'folder.json' is a folder" in call("fit", "mine:folder").stderr


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("check", "digits", "SGD(0.1)", "HeavyBall(0.1)"), "check needs every hyper-parameter set, but momentum of"),
        (
            ("check", "digits", "SGD(0.1)", "--steps", "0"),
            "Invalid value for '--steps': it must be a whole number from 1",
        ),
        (("check", "digits", "SGD(0.1)", "--fit", "mine.py"), "Invalid value for '--fit': 'mine.py' is not a fit"),
        (("check", "digits", "--out", "fit.csv"), "Invalid value for '--out': 'fit.csv' should end in .json, .npz"),
    ],
)
def test_a_wrong_check_is_refused_before_anything_is_trained(
    args: tuple[str, ...], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nqm.nets.workloads.network_of", None)
    assert part in call(*args).stderr


@pytest.mark.parametrize("verb", [("fit",), ("check",)])
def test_wrong_examples_and_steps_name_their_options(verb: tuple[str, ...]) -> None:
    assert "Invalid value for '--examples': " in call(*verb, "digits", "--examples", "-5").stderr
    assert "Invalid value for '--train-steps': " in call(*verb, "digits", "--train-steps", "-1").stderr


@pytest.mark.parametrize(
    "args",
    [
        ("fit", "mine:network", "--descent", "5"),
        ("predict", "digits.json", "SGD(0.1)", "-b", "64", "--steps", "5"),
        pytest.param(("advise", "digits.json", "-b", "64", "--target", "0.08"), marks=pytest.mark.slow),
        ("check", "mine:network", "SGD(0.1)", "--batch-sizes", "8", "--steps", "3", "--seeds", "1"),
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize("number", BROKEN)
def test_what_cannot_be_printed_is_told(args: tuple[str, ...], number: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert BROKEN[number] in told_without_output(args, number, capfd)


def test_the_names_of_workloads_are_those_of_the_package():
    from nqm.cli.nets import WORKLOAD_NAMES
    from nqm.nets.workloads import WORKLOADS

    assert tuple(WORKLOADS) == WORKLOAD_NAMES


@pytest.mark.parametrize("args", [["fit", "digit"], ["check", "digit"], ["fit", "digits", "--examples", "1"]], ids=str)
def test_a_wrong_call_is_refused_before_torch_is_imported(args):
    code = (
        "import sys\nfrom nqm.cli import main\n"
        f"try:\n    main({args})\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "2 False\n", told.stderr
