"""The command line: its numbers are the library's, and its help runs."""

from __future__ import annotations

import csv
import io
import re
import shlex
from pathlib import Path

import click
import pytest
from cli.shell import SMALL, call, strict, told

import nqm
from nqm import EMA, SGD, HeavyBall, Quadratic, Spectrum
from nqm.cli import main
from nqm.cli.options import verbs
from nqm.text.objects import parse_schedule

COMMANDS = verbs(main)
VERBS = list(COMMANDS)
PROBLEM = Quadratic(Spectrum.power_law(100))


@pytest.fixture(autouse=True)
def apart(elsewhere):
    return elsewhere


# Help.


def test_alone_it_shows_a_tour():
    result = call()
    assert result.exit_code == 0
    commands = re.findall(r"^  nqm (\w+)", result.stdout, re.MULTILINE)
    assert len(commands) == 7
    assert set(commands) <= set(main.commands)
    assert max(map(len, result.stdout.splitlines())) <= 110


def test_version():
    assert call("--version").stdout == f"nqm {nqm.__version__}\n"


def test_help_names_the_verbs_and_completion():
    text = call("--help").stdout
    for verb in main.commands:
        assert re.search(rf"^  {verb} ", text, re.MULTILINE)
    assert "_NQM_COMPLETE=bash_source" in text
    assert "..." not in text.replace("[ARGS]...", "").replace("momentum, ...", "")  # no help is cut short


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_and_json(verb):
    text = call(*verb.split(), "--help").stdout
    examples = text.split("Examples:\n")[1].strip().splitlines()
    assert [line.strip() for line in examples] == list(COMMANDS[verb].examples)
    assert examples
    assert "--json" in text or verb in ("serve", "lab plot")  # whose answers are JSON, and a picture


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_help(verb):
    for option in COMMANDS[verb].params:
        if isinstance(option, click.Option):
            assert option.help
            assert option.help.rstrip("]").endswith((".", "9"))
            assert option.is_flag or option.metavar or isinstance(option.type, click.Choice)


EXAMPLES = [(verb, e) for verb in VERBS for e in COMMANDS[verb].examples]
ELSEWHERE = (
    "paper",
    "claims",
    "fit",
    "predict",
    "advise",
    "check",
    "watch",
    "batch",
    "forecast",
    "lab",
    "serve",
)  # tested below, with networks, lab and page
TOURED = re.findall(r"^  (nqm (?!serve).*)$", call().stdout, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", dict.fromkeys([e for verb, e in EXAMPLES if verb.split()[0] not in ELSEWHERE] + TOURED)
)
def test_examples_run(line, elsewhere):
    words = shlex.split(line)
    assert words[0] == "nqm"
    result = call(*words[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout
    for option in ("--plot", "--csv", "--save"):
        if option in words and (name := words[words.index(option) + 1]) != "-":
            assert (elsewhere / name).stat().st_size > 0
            assert f"wrote {name}" in result.stderr


@pytest.mark.parametrize(("verb", "line"), EXAMPLES)
def test_every_example_is_a_call_that_its_verb_reads(verb, line, elsewhere):
    """Also of verbs whose examples need a network, a scheduler or minutes: arguments are read, and nothing is run."""
    for name in (
        "digits.json",
        "adam.json",
        "digits.toml",
        "digits.db",
        "forecast.json",
        "sizes.json",
        "run.csv",
        "run.jsonl",
        "checkpoint.pt",
    ):
        (elsewhere / name).write_text("")
    words = shlex.split(line)
    lead = ["nqm", *verb.split()]
    assert words[: len(lead)] == lead
    context = COMMANDS[verb].make_context(verb, words[len(lead) :])
    assert context.params


@pytest.mark.parametrize("line", [e for verb, e in EXAMPLES if verb == "paper"])
def test_paper_examples_call_with_real_names(line, elsewhere, monkeypatch):
    from nqm import paper

    seen = []
    monkeypatch.setattr(
        paper, "run_all", lambda folder, only, progress, **_: seen.append((folder, only)) or [Path(folder) / "a"]
    )
    assert call(*shlex.split(line)[1:]).exit_code == 0
    assert set(seen[0][1] or ()) <= set(paper.FIGURES)


# Numbers are the library's.


def test_curve_json():
    found = strict(
        call("curve", "HeavyBall(0.1, 0.9)", "-b", "2^4", "--steps", 300, "--spectrum", SMALL, "--json").stdout
    )
    run = PROBLEM.run(HeavyBall(0.1, 0.9), 16, 300)
    assert found == run.to_dict()


def test_curve_with_a_schedule_as_csv():
    args = ("--spectrum", SMALL, "--schedule", "warmup(10) + cosine(40)", "--grid", "linear", "--points", 11)
    rows = list(
        csv.DictReader(io.StringIO(call("curve", "SGD(0.5)", "-b", 8, "--steps", 50, *args, "--csv", "-").stdout))
    )
    run = PROBLEM.run(SGD(0.5), 8, 50, parse_schedule("warmup(10) + cosine(40)"), "linear", 11)
    assert [int(row["steps"]) for row in rows] == run.steps.tolist() == list(range(0, 51, 5))
    for name in ("loss", "signal", "noise", "noise_scale", "curvature_noise_scale"):
        assert [float(row[name]) for row in rows] == getattr(run, name).tolist()


def test_curve_table_begins_at_the_first_step_and_ends_at_the_last():
    lines = call("curve", "SGD(0.5)", "-b", 8, "--steps", 12345, "--spectrum", SMALL).stdout.splitlines()
    steps = [line.split()[0] for line in lines[2:-2]]
    assert (steps[0], steps[-1]) == ("0", "12,345")
    assert len(steps) <= 20


@pytest.mark.parametrize("until", ["first", "settled"])
def test_steps_json(until):
    args = ("-b", "inf", "--target", "1e-3", "--until", until, "--spectrum", "Spectrum([1])", "--json")
    found = strict(call("steps", "HeavyBall(0.05, 0.99)", *args).stdout)
    hit = nqm.steps_to_target(Quadratic(Spectrum([1.0])), HeavyBall(0.05, 0.99), float("inf"), 1e-3, until=until)
    assert found == hit.to_dict()
    assert found["steps"] == {"first": 174, "settled": 616}[until]  # the second is one after the last above


def test_least_squares_has_the_same_verbs():
    problem = nqm.LeastSquares(Spectrum.power_law(100), 0.5)
    least = ("--spectrum", SMALL, "--problem", "least_squares", "--label-noise", 0.5, "--json")
    found = strict(call("curve", "SGD(0.2)", "-b", 4, "--steps", 50, *least).stdout)
    assert found["loss"][-1] == problem.run(SGD(0.2), 4, 50).loss[-1]
    found = strict(call("steps", "SGD(0.2)", "-b", 8, "--target", 1, *least).stdout)
    assert found["steps"] == nqm.steps_to_target(problem, SGD(0.2), 8, 1).steps
    found = strict(call("tune", "SGD", "-b", 8, "--target", 0.5, *least).stdout)
    assert found["steps"] == nqm.tune(problem, SGD(), 8, 0.5).steps
    found = strict(call("sweep", "SGD", "--target", 0.5, "--batch-sizes", "4,16", *least).stdout)
    assert found["sweeps"][0]["steps"] == nqm.sweep(problem, SGD(), [4, 16], target=0.5).steps.tolist()
    diverged = call("curve", "SGD(1)", "-b", 2, "--steps", 50, "--spectrum", SMALL, "--problem", "least_squares")
    assert diverged.exit_code == 1
    assert "the noise of a batch feeds back" in diverged.stdout
    assert "--label-noise needs" in told(call("tune", "SGD", "-b", 8, "--target", 1, "--label-noise", 1))
    assert "label_noise must be" in told(call("tune", "SGD", "-b", 8, "--target", 1, *least[:4], "--label-noise", -1))
    assert "Invalid value for '--label-noise'" in told(call("tune", "SGD", "-b", 8, "--target", 1, "--problem", "least_squares",
                                       "--spectrum", "power_law(100, noise_exponent=0.5)"))  # fmt: skip


@pytest.mark.parametrize("goal", [("--target", 0.05), ("--steps", 200), ("--examples", "1e4")])
def test_tune_json(goal):
    found = strict(call("tune", "HeavyBall", "-b", 64, *goal, "--spectrum", SMALL, "--json").stdout)
    value = {"target": 0.05, "steps": 200, "examples": 1e4}[goal[0][2:]]
    assert found == nqm.tune(PROBLEM, HeavyBall(), 64, **{goal[0][2:]: value}).to_dict()


def test_tune_text_has_every_setting():
    text = call("tune", "EMA(SGD)", "-b", 64, "--target", 0.05, "--spectrum", SMALL).stdout
    for name in ("lr", "decay", "steps", "examples", "loss"):
        assert re.search(rf"^{name} +\S", text, re.MULTILINE)


@pytest.mark.slow
def test_schedule_json_and_csv(elsewhere):
    args = ("-b", 64, "--target", 0.05, "--pieces", 3, "--spectrum", SMALL)
    found = strict(call("schedule", "SGD", *args, "--json", "--csv", "pieces.csv").stdout)
    best = nqm.optimal_schedule(PROBLEM, SGD(), 64, 0.05, pieces=3)
    assert found == best.to_dict()
    rows = list(csv.DictReader((elsewhere / "pieces.csv").open()))
    assert [int(row["steps"]) for row in rows] == best.schedule.lengths.tolist()
    lr = best.optimizer.lr * best.schedule.lr  # type: ignore[attr-defined]
    assert [float(row["lr"]) for row in rows] == lr.tolist()


def test_schedule_of_batch_sizes_spends_the_budget():
    args = ("-b", 1, "--examples", 5000, "--on", "batch_size", "--pieces", 3, "--spectrum", SMALL, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(call("schedule", "SGD", *args).stdout)))
    assert sum(float(r["steps"]) * float(r["batch_size"]) for r in rows) == pytest.approx(5000, rel=1e-6)


def test_sweep_json_csv_and_text(elsewhere):
    args = ("--target", 0.05, "--batch-sizes", "4..256", "--spectrum", SMALL)
    result = call("sweep", "SGD", "EMA(SGD)", *args, "--json", "--csv", "out/sweep.csv")
    sweeps = [nqm.sweep(PROBLEM, o, [4, 16, 64, 256], target=0.05) for o in (SGD(), EMA(SGD()))]
    assert strict(result.stdout)["sweeps"] == [s.to_dict() for s in sweeps]
    rows = list(csv.DictReader((elsewhere / "out" / "sweep.csv").open()))
    assert [(r["label"], float(r["steps"])) for r in rows] == [
        (s.label, row["steps"]) for s in sweeps for row in s.table()
    ]
    assert {"batch_size", "examples", "lr", "decay", "message"} <= set(rows[0])
    text = call("sweep", "SGD", "EMA(SGD)", *args).stdout
    for part in (
        "Tuned steps to loss 0.05",
        "EMA(SGD()), tuned",
        "20%",
        "2x",
        "ratio",
        "knee",
        "Regimes",
        "diminishing",
    ):
        assert part in text


def test_sweep_where_small_batches_fail_says_why_and_succeeds():
    result = call("sweep", "SGD(1)", "--target", 0.05, "--batch-sizes", "1,1024", "--spectrum", SMALL)
    assert result.exit_code == 0
    assert "never reaches 0.05" in result.stdout


def test_spectrum_json_matches_and_saves(elsewhere):
    found = strict(call("spectrum", "--json").stdout)
    paper = Spectrum.power_law(10_000)
    assert (found["modes"], found["nodes"], found["trace"], found["initial_loss"]) == (
        10_000, 10_000, paper.trace, paper.initial_loss,
    )  # fmt: skip
    saved = call("spectrum", "power_law(1e12)", "--save", "there/wide.npz", "--json")
    assert saved.exit_code == 0, saved.output
    assert strict(saved.stdout) == strict(call("spectrum", "--spectrum", "there/wide.npz", "--json").stdout)
    few = strict(call("spectrum", "--compress", "1e-6", "--json").stdout)
    assert few["nodes"] < 300
    assert few["trace"] == pytest.approx(paper.trace, rel=1e-6)


def test_spectrum_csv_is_read_back(elsewhere):
    assert call("spectrum", "power_law(7, exponent=1.3)", "--csv", "mine.csv").exit_code == 0
    assert Spectrum.load("mine.csv").h.tolist() == Spectrum.power_law(7, 1.3).h.tolist()


@pytest.mark.slow
def test_paper_draws_one_figure(elsewhere):
    result = call("paper", "--out", "figures", "--only", "fig2")
    assert result.exit_code == 0, result.output
    assert {p.name for p in (elsewhere / "figures").iterdir()} == {"fig2.png", "fig2.pdf", "fig2.csv", "report.md"}
    assert all((elsewhere / line).exists() for line in result.stdout.splitlines())


def test_an_optimizer_of_ones_own(elsewhere):
    source = (
        "from dataclasses import dataclass\nfrom nqm import Optimizer, rate\n"
        "@dataclass(frozen=True)\nclass Half(Optimizer):\n    lr: object = rate()\n"
        "    def system(self, h, t):\n        return [[-self.lr * h / 2]], [-self.lr / 2]\n"
        "    def initial(self):\n        return [1.0]\n    def readout(self, t):\n        return [1.0]\n"
    )
    (elsewhere / "my_half.py").write_text(source)
    args = ("-b", 64, "--steps", 50, "--spectrum", SMALL, "--json")
    half = strict(call("curve", "my_half:Half(1.0)", *args).stdout)
    assert half["loss"] == strict(call("curve", "SGD(0.5)", *args).stdout)["loss"]
    tuned = call("tune", "EMA(my_half:Half)", "-b", 64, "--target", 0.05, "--spectrum", SMALL)
    assert tuned.exit_code == 0, tuned.output
