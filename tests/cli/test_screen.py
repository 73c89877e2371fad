"""What a verb prints in a terminal of any width, and in a pipe: every number of its JSON, and no number broken.

A number of the JSON that the text does not have is named in ``UNSHOWN``, with the reason. A verb without a call here, and a
name in ``UNSHOWN`` that is in no JSON, fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.shell import ROOT, SMALL, call

pytest.importorskip("termios")  # Terminals of this kind are those of POSIX.
from cli.terminal import WIDTHS, delivered, numbers, on_terminal, printed, stands
from lab_studies import TOML
from nets.monitoring.test_watching import write

from nqm.cli import main
from nqm.cli.options import verbs
from nqm.cli.output import show_table
from nqm.logs import Log, forecast, read_logs

MINE = """
import torch
from torch import nn
from nqm.nets import Network

def network():
    torch.manual_seed(0)
    return Network(nn.Linear(4, 3), nn.functional.cross_entropy, (torch.randn(60, 4), torch.arange(60) % 3))
"""
CALLS: list[tuple[object, ...]] = [
    ("curve", "SGD(0.1)", "-b", 8, "--steps", 500, "--points", 8, "--replicas", 16, "--spectrum", SMALL),
    ("steps", "SGD(0.1)", "-b", 64, "--target", 0.1),
    ("tune", "HeavyBall", "-b", 1024, "--target", 0.01),
    ("schedule", "SGD", "-b", 64, "--target", 0.1, "--pieces", 4, "--spectrum", SMALL),
    ("sweep", "SGD", "HeavyBall", "EMA(SGD)", "EMA(HeavyBall)", "Nesterov", "Polyak(SGD)", "--target", 0.1,
     "--batch-sizes", "4,64,1024", "--spectrum", SMALL),
    ("map", "HeavyBall", "-b", 1024, "--target", 0.01, "--x", "lr=0.001..8..7", "--y", "momentum=0..0.999..5"),
    ("spectrum",),
    ("demo",),
    ("doctor",),
    ("doctor", "HeavyBall(momentum=0.9)"),
    ("claims", "--list"),
    ("claims", "stationary_covariance"),
    ("paper", "--only", "fig2"),
    ("fit", "mine:network", "--out", "other.json"),
    ("predict", "network.json", "SGD(0.1)", "-b", 4, "--steps", 20, "--target", 1.0),
    ("advise", "network.json", "-b", 4, "--target", 1.06, "--optimizer", "SGD"),
    ("check", "mine:network", "SGD(0.05)", "--batch-sizes", "4,16", "--steps", 20, "--fit", "network.json"),
    ("watch", "run.jsonl", "--once"),
    ("batch", "--noise-scale", 1000, "--devices", 8, "--per-device", 32, "--seconds", 0.2, "--training-steps", "1e5"),
    ("forecast", "fit", "example", "--optimizer", "AdamW", "--out", "again.json"),
    ("forecast", "show", "forecast.json"),
    ("forecast", "predict", "forecast.json", "--schedule", "wsd(24000, 2160, 4000, end=0.1)", "--peak", "3e-4"),
    ("forecast", "check", "forecast.json"),
    ("forecast", "plot", "forecast.json"),
    ("forecast", "best", "forecast.json", "--steps", 6000, "--pieces", 4),
    ("forecast", "length", "forecast.json", "--steps", "3k,6k"),
    ("forecast", "next", "forecast.json", "--steps", 6000),
    ("forecast", "batch", "sizes.json"),
    ("lab", "run", "small.toml", "--on", "here"),
    ("lab", "run", "small.toml", "--dry-run"),
    ("lab", "status", "small.toml"),
    ("lab", "list", "small.toml"),
    ("lab", "show", "small.toml", "KEY"),
    ("lab", "compare", "small.toml"),
    ("lab", "salvage", "small.db", "--out", "saved.db"),
]  # fmt: skip
EXEMPT = {
    "serve": "prints an address",
    "lab plot": "writes a picture",
    "lab export": "prints its rows themselves, as CSV",
}
CURVE = "points of a curve, of which the table has at most 16 rows; --csv has all"
MODEL = "what the file of a model has, for programs"
INPUT = "what the study file says"
UNSHOWN: dict[str, dict[str, str]] = {
    "curve": {"noise": "the table has noise / B"}
    | dict.fromkeys(("noise_scale", "curvature_noise_scale", "band_edges", "band_signal", "band_noise"), CURVE)
    | {"sampled": CURVE},
    "schedule": {"schedule": "multipliers; the table has the rates"},
    "map": {"boundary": "the line of the picture"},
    "demo": dict.fromkeys(("sweeps[].examples", "sweeps[].lr", "sweeps[].effective_lr", "sweeps[].added"),
                          "nqm sweep prints settings"),
    "claims": dict.fromkeys(("claims[].number", "claims[].table"), "the sentence rounds; --csv has the table")
    | {"claims[].seconds": "how long it took"},
    "fit": dict.fromkeys(
        ("trace_noise", "noise_exponent_spread", "adam_power_spread", "negative_share", "least_curvature",
         "noise_eigenvectors", "full_gradients", "tested"), MODEL)
    | dict.fromkeys(("gradient_seconds", "product_cost", "product_cost_together"), "a time, to two digits or to one and a 0"),
    "predict": dict.fromkeys(("steps", "loss", "low", "high"), CURVE)
    | {"reach": "multiplies steps, for the remark on how far to trust it", "horizon": "said where the test was not so far"},
    "advise": {"decay_steps": "the sentence gives the share of the steps"},
    "check": {"fit": "nqm fit prints it", "table": "the table has the last steps alone; --csv has all"},
    "watch": {"skipped": "said where it is not 0", "doubled": "said as percentages"},
    "batch": {"by_devices": CURVE, "speed": "said as a factor", "cost": "said as a factor"},
    "forecast fit": dict.fromkeys(("exponent", "theta", "covariance", "prior", "cost", "scatter", "residuals"), MODEL)
    | {"logs": "the logs themselves"},
    "forecast predict": dict.fromkeys(("steps", "loss", "low", "high", "signal", "noise"), CURVE),
    "forecast check": {"outlooks": CURVE},
    "forecast plot": {"lines": CURVE},
    "forecast best": {"lr": CURVE, "lengths": "lengths of the pieces, which --as text has"},
    "forecast batch": dict.fromkeys(("steps", "batch_size"), CURVE),
    "lab run": {"study": INPUT, "table[].seeds": INPUT, "table[].arrived": "seeds, unless a message says otherwise",
                "workers": "said where the time is known"},
    "lab salvage": {"lost": "said where it is not 0", "saved.studies": "trials are what counts"},
    "lab show": {"trial": INPUT, "result.times": CURVE, "result.curves": CURVE},
    "lab compare": {"table": "the table has the columns that are compared; --csv has all", "target": INPUT,
                    "critical_batch_size": "rounded to whole examples"},
}  # fmt: skip
UNSHOWN["forecast show"] = UNSHOWN["forecast fit"]
UNSHOWN["lab status"] = {name: why for name, why in UNSHOWN["lab run"].items() if name != "workers"}


def verb_of(args: tuple[object, ...]) -> str:
    return " ".join(map(str, args[: 2 if args[0] in ("forecast", "lab") else 1]))


def sized(lr: float, batch_size: float) -> Log:
    t = np.arange(50, 4001, 50)
    loss = 1 + 5 / np.sqrt(1 + lr * t) + 8 * lr / batch_size * (1 - np.exp(-t / 500))
    return Log(t, loss, lr, batch_size, "SGD", name=f"{lr:g} at {batch_size:g}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the calls name."""
    folder = tmp_path_factory.mktemp("screen")
    (folder / "mine.py").write_text(MINE)
    (folder / "small.toml").write_text(TOML.format(worker="run_trials"))
    write(folder / "run.jsonl", [32.0, 64.0, 192.0, 300.0, 500.0])
    forecast([sized(lr, B) for lr in (0.1, 0.05) for B in (16, 64)]).save(folder / "sizes.json")
    forecast(read_logs("example", optimizer="AdamW")).save(folder / "forecast.json")
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield folder
    sys.modules.pop("mine", None)  # Other tests have a module of that name.


@cache
def said(args: tuple[object, ...]) -> tuple[Any, dict[int, str], str]:
    """The JSON of a call, its text at every width, and its text in a pipe."""
    if args[0] == "lab" and not Path("small.db").exists():
        assert call("lab", "run", "small.toml", "--on", "here").exit_code == 0
    if args[0] in ("predict", "advise", "check") and not Path("network.json").exists():
        assert call("fit", "mine:network").exit_code == 0
    if "KEY" in args:
        key = call("lab", "list", "small.toml", "--csv", "-").stdout.splitlines()[1].partition(",")[0]
        args = tuple(key if one == "KEY" else one for one in args)
    data, texts, piped = delivered(lambda: call(*args))
    return data, texts, piped


def name(args: tuple[object, ...]) -> str:
    return " ".join(map(str, args))[:60]


def test_every_verb_is_called_here_or_says_why_not() -> None:
    assert {verb_of(args) for args in CALLS} | set(EXEMPT) == set(verbs(main))
    assert set(UNSHOWN) <= {verb_of(args) for args in CALLS}


@pytest.mark.slow
@pytest.mark.parametrize("args", CALLS, ids=name)
def test_every_number_of_the_json_is_in_the_text_at_every_width(args: tuple[object, ...]) -> None:
    data, texts, piped = said(args)
    for width, text in {**texts, 0: piped}.items():
        found = printed(text)
        missing = {
            path for path, value in numbers(data) if not stands(value, found) and not unshown(verb_of(args), path)
        }
        assert not missing, (width, missing, text)


@pytest.mark.slow
@pytest.mark.parametrize("args", CALLS, ids=name)
def test_a_terminal_shows_what_a_pipe_gets(args: tuple[object, ...]) -> None:
    _, texts, piped = said(args)
    for width, text in texts.items():
        assert set(text.replace("─", "").split()) == set(piped.split()), width


@pytest.mark.slow
@pytest.mark.parametrize("args", CALLS, ids=name)
def test_lines_end_where_the_terminal_ends(args: tuple[object, ...]) -> None:
    """Only a table, of whose columns one cannot be narrower, and a schedule that is meant to be copied are wider."""
    _, texts, _ = said(args)
    for width in (80, 120):
        wide = [line for line in texts[width].splitlines() if len(line) > width]
        assert all(" schedule " in line or line.startswith("for --step-batch-size-schedule") for line in wide)


@pytest.mark.slow
def test_what_is_unshown_is_in_the_json() -> None:
    for verb, names in UNSHOWN.items():
        paths = {path for args in CALLS if verb_of(args) == verb for path, _ in numbers(said(args)[0])}
        assert not {one for one in names if not any(under(path, one) for path in paths)}, verb


def unshown(verb: str, path: str) -> bool:
    return any(under(path, one) for one in UNSHOWN.get(verb, {}))


def under(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")


# The tests of the tests.


def test_a_terminal_has_the_width_that_it_says() -> None:
    long = "a sentence " * 30
    for width in WIDTHS:
        lines = on_terminal(lambda: show_table([{"what": long}], long), width).splitlines()
        assert max(map(len, lines)) in range(width - 10, width + 1)


@pytest.mark.parametrize("shown", ["13,340,8", "13,340,83", "133", "0.013340838"])
def test_a_number_that_lost_digits_is_missed(shown: str) -> None:
    assert stands(13_340_838, printed("takes 13,340,838 steps"))
    assert not stands(13_340_838, printed(f"takes {shown} steps"))


@pytest.mark.parametrize(
    ("text", "value"), [("5%", 0.05), ("1e-05", 1e-5), ("8.5", 8.4567), ("0.1", 0.09999759), ("-0.0061", -0.0060993)]
)
def test_a_number_that_is_rounded_is_found(text: str, value: float) -> None:
    assert stands(value, printed(f"about {text}, or so"))
    assert not stands(1.2 * value, printed(f"about {text}, or so"))


@pytest.mark.slow
def test_what_is_said_during_a_progress_bar_has_a_line_of_its_own() -> None:
    """`nqm fit` says what it will take while its bar moves; standard error is the terminal."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), "."]), "TERM": "xterm"}
    command = [sys.executable, "-m", "nqm", "fit", "mine:network", "--out", "bar.json"]

    def run() -> None:
        assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=sys.stdout, env=env).returncode == 0

    lines = on_terminal(run, 100).replace("\r", "\n").splitlines()
    (said,) = [line for line in lines if "products and" in line]
    assert said.lstrip()[0].isdigit()
    assert "fitting" not in said


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 80])
def test_a_map_in_a_terminal_has_every_number(columns: int) -> None:
    """The program itself, with standard output on a terminal."""
    args = ["map", "HeavyBall", "-b", "1024", "--target", "0.01", "--x", "lr=0.001..8", "--y", "momentum=0..0.999"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("COLUMNS", None)

    def run() -> None:
        done = subprocess.run([sys.executable, "-m", "nqm", *args], stdout=sys.stdout, stderr=subprocess.PIPE, env=env)
        assert done.returncode == 0

    text = on_terminal(run, columns)
    piped = subprocess.run([sys.executable, "-m", "nqm", *args], capture_output=True, text=True, env=env).stdout
    assert "13,340,838" in piped.split()
    assert set(text.replace("─", "").split()) == set(piped.split())
