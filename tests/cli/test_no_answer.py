"""The command line where there is no answer: one sentence and a status, whether the run fails or the call is wrong."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from cli.shell import SMALL, call, strict, told
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(autouse=True)
def apart(elsewhere):
    return elsewhere


# A computation without an answer.


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("curve", "SGD(3)", "-b", 8, "--steps", 10), "diverges"),
        (("steps", "SGD(3)", "-b", 8, "--target", 0.1), "diverges"),
        (("steps", "SGD(1)", "-b", 1, "--target", 0.01), "never reaches 0.01"),
        (("steps", "SGD(0.1)", "-b", 64, "--target", 0.1, "--max-steps", 10), "after 10 steps"),
        (("tune", "SGD(1)", "-b", 1, "--target", 0.01), "never reaches 0.01"),
        (("sweep", "SGD(1)", "--target", 0.01, "--batch-sizes", 1), "never reaches 0.01"),
    ],
)
def test_no_answer_is_a_sentence_and_status_1(args, part):
    result = call(*args, "--spectrum", SMALL)
    assert result.exit_code == 1, result.output
    assert part in result.stdout
    assert result.stderr == ""
    as_json = call(*args, "--spectrum", SMALL, "--json")
    assert as_json.exit_code == 1
    assert part in json.dumps(strict(as_json.stdout))


def test_a_run_that_overflows_is_strict_json():
    result = call("curve", "SGD(1000)", "-b", 8, "--steps", "1e5", "--spectrum", SMALL, "--json", "--csv", "run.csv")
    assert result.exit_code == 1
    assert strict(result.stdout)["loss"][-1] is None
    assert result.stderr == "wrote run.csv\n"  # and no warnings of NumPy's
    assert "nan" not in Path("run.csv").read_text()


# A wrong call.


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("sweeep",), "did you mean sweep?"),
        (("--sweep",), "--sweep"),
        (("curve",), "OPTIMIZER"),
        (("curve", "SGD(0.1)", "--steps", 5), "--batch-size"),
        (("curve", "SGD", "-b", 8, "--steps", 5), "lr"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", -5), "steps must be"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 2.5), "whole number; write a number such as 1024, 1,024, 1k"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", "inf"), "whole number; write a number such as 1024, 1,024, 1k"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", "nan"), "'nan' is not a number; write a number such as 1024, 1,024"),
        (("curve", "SGD(0.1)", "-b", "-inf", "--steps", 5), "batch_size must be"),
        (
            ("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--points", "1e9"),
            "whole number from 2 to 1,000,000, got 1,000,000,000",
        ),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--noise", "student_t(x)"), "'x' is not a number"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", ""), "must be the name of a file, got ''"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "x" * 300), "File name too long"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", "inf"), "'inf' is not finite; write a number such as"),
        (
            ("sweep", "SGD", "--target", 0.1, "--batch-sizes", "1,024"),
            "a comma separates numbers, so write 1024 and not 1,024",
        ),
        (("map", "SGD", "--target", 1, "--x", "lr=0.1..1", "--y", "batch_size=4..8", "-b", 8), "but not both"),
        (("map", "HeavyBall", "--target", 1, "--x", "lr=0.1..1", "--y", "momentum=0..0.5"), "give --batch-size"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", "1e30"), "'1e30' is too large"),
        (
            ("steps", "SGD(0.1)", "-b", 8, "--target", "0,1"),
            "'0,1' is not a number; write a number such as 1024, 1,024",
        ),
        (("sweep", "SGD", "--target", 0.1, "--batch-sizes", "4...16"), "got '4...16'"),
        (("spectrum", "power_law(1,024)"), "here a comma separates numbers, so write 1024 and not 1,024"),
        (("serve", "--host", ""), "Invalid value for '--host': it must be an address such as 127.0.0.1, got ''"),
        (("serve", "--time-limit", 0), "Invalid value for '--time-limit': it must be a positive number of seconds"),
        (("serve", "--port", "1M"), "whole number from 0 to 65,535, got 1,000,000"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", "1e12"), "10^9"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--points", 1), "--points"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--grid", "round"), "--grid"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--schedule", "cosin(5)"), "did you mean cosine?"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--spectrum", "powerlaw(5)"), "did you mean power_law?"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--spectrum", "missing.json"), "missing.json"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--plot", "picture.gif"), ".png, .pdf, .svg"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--plot", "."), "should end in"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "/dev/null/here/x.csv"), "cannot write into"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "."), "is a folder"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "-", "--json"), "both write to standard output"),
        (("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--quiet"), "--quiet"),
        (("curve", "SGD(0.1)", "SGD(0.2)", "-b", 8, "--steps", 5), "unexpected extra argument"),
        (("steps", "SGD(0.1)", "-b", 8), "--target"),
        (
            ("sweep", "SGD", "--target", 0.1, "--batch-sizes", "16,inf"),
            "Invalid value for '--batch-sizes': batch sizes must be finite",
        ),
        (
            ("sweep", "SGD", "--target", 0.1, "--plot", "a.png", "--plot-lr", "./a.png"),
            "--plot and --plot-lr would both write 'a.png'; name two files",
        ),
        (
            ("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "a.png", "--plot", "a.png"),
            "--csv and --plot would both write",
        ),
        (("tune", "SGD", "-b", "inf", "--examples", "1e5"), "a budget of examples needs a finite batch size, got inf"),
        (
            ("map", "HeavyBall", "--target", 1, "--x", "lr=0..1", "--y", "momentum=0..0.5", "-b", 8),
            "Invalid value for '--x': lr must be positive",
        ),
        (("tune", "SGD", "-b", 8, "--target", 0.1, "--seed", -1), "'--seed': it must be a whole number from 0, got -1"),
        (("fit", "digits", "--seed", -1), "'--seed': it must be a whole number from 0, got -1"),
        (("fit", "digits", "--train-steps", -1), "'--train-steps': it must be a whole number from 0, got -1"),
        (("fit", "digits", "--examples", 1), "'--examples': it must be a whole number from 2, got 1"),
        (("fit", "digit"), "there is no workload 'digit' (did you mean digits?)"),
        (("check", "mine"), "there is no workload 'mine'; there are digits, fashion_mlp"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", "nan"), "not a number"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", -1), "target must be"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", 0), "target must be"),
        (("steps", "SGD(0.1)", "-b", 0, "--target", 0.1), "batch_size must be"),
        (("steps", "SGD(0.1)", "-b", -8, "--target", 0.1), "batch_size must be"),
        (("steps", "SGD(0.1)", "-b", "many", "--target", 0.1), "'many' is not a number"),
        (("steps", "SGD(0.1)", "-b", "9^9^9", "--target", 0.1), "exponent"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", 0.1, "--until", "later"), "--until"),
        (("steps", "SGD(0.1)", "-b", 8, "--target", 0.1, "--max-steps", -1), "max_steps"),
        (("tune", "SGD", "-b", 8), "exactly one of --target, --steps and --examples"),
        (("tune", "SGD", "-b", 8, "--target", 0.1, "--steps", 5), "exactly one of"),
        (("tune", "SGD", "-b", 8, "--examples", 4), "examples must be"),
        (("tune", "SGD", "-b", 8, "--steps", 0), "steps must be"),
        (("tune", "__import__('os')", "-b", 8, "--steps", 5), "no optimizer '__import__'"),
        (("tune", "SGD.lr", "-b", 8, "--steps", 5), "is not an optimizer"),
        (("tune", "lambda: 1", "-b", 8, "--steps", 5), "has no meaning here"),
        (("tune", "f'{1}'", "-b", 8, "--steps", 5), "has no meaning here"),
        (("tune", "SGD(9**9**9)", "-b", 8, "--steps", 5), "exponent"),
        (("tune", "nowhere_at_all:Mine", "-b", 8, "--steps", 5), "cannot import"),
        (("tune", "", "-b", 8, "--steps", 5), "such as"),
        (("schedule", "SGD", "-b", 8), "exactly one of"),
        (("schedule", "SGD", "-b", 8, "--target", 0.1, "--pieces", 0), "--pieces"),
        (("schedule", "SGD", "-b", 8, "--target", 0.1, "--on", "batch_size"), "give --examples"),
        (("schedule", "SGD", "-b", 8, "--target", 0.1, "--on", "depth"), "--on"),
        (("schedule", "Lookahead(SGD, 0.5, 5)", "-b", 8, "--target", 0.1), "steps are all alike"),
        (("sweep", "--target", 0.1), "OPTIMIZER"),
        (("sweep", "SGD"), "--target"),
        (("sweep", "SGD", "--target", 0.1, "--batch-sizes", "4,-1"), "must be positive"),
        (("sweep", "SGD", "--target", 0.1, "--batch-sizes", "64..4"), "rise by a factor above 1"),
        (("sweep", "SGD", "--target", 0.1, "--batch-sizes", ""), "such as"),
        (("spectrum", "power_law(0)"), "d must be"),
        (
            ("spectrum", "power_law(10)", "--compress", "1e-300"),
            "Invalid value for '--compress': compress: tol must be at least",
        ),
        (("spectrum", "power_law(10)", "--spectrum", "power_law(20)"), "give a SPECTRUM or --spectrum, but not both"),
        (("spectrum", "power_law(10)", "--compress", 2), "tol"),
        (("spectrum", "power_law(10)", "--save", "x.csv"), ".json, .npz"),
        (("paper", "--only", "fig99"), "there is no figure 'fig99'"),
        (("demo", "--plot", "demo.txt"), ".png"),
    ],
)
def test_a_wrong_call_is_a_sentence_and_status_2(args, part, elsewhere):
    assert part in told(call(*args))
    assert not list(elsewhere.iterdir())


def test_numbers_are_read_as_people_write_them():
    wanted = strict(
        call("curve", "SGD(0.1)", "-b", 1024, "--steps", 4000, "--points", 10, "--spectrum", SMALL, "--json").stdout
    )
    for size, steps, points in (("1,024", "4k", "1e1"), ("2^10", "4,000", "10"), ("2**10", "4e3", "1k/100")):
        args = ("-b", size, "--steps", steps, "--points", points, "--spectrum", "power_law(1k/10)", "--json")
        assert strict(call("curve", "SGD(0.1)", *args).stdout) == wanted


@pytest.mark.parametrize("text", ["student_t(5/2)", "student_t(df = 5/2)", "student_t(2.5)"])
def test_a_law_of_noise_is_read_as_people_write_it(text):
    args = ("-b", 4, "--steps", 3, "--replicas", 4, "--spectrum", SMALL, "--json", "--noise")
    plain = strict(call("curve", "SGD(0.1)", *args, "student_t(2.5)").stdout)
    assert strict(call("curve", "SGD(0.1)", *args, text).stdout) == plain
    assert "sampled" not in strict(call("curve", "SGD(0.1)", *args[:4], *args[6:], "gaussian()").stdout)


def test_a_file_without_permission_is_refused_before_the_work(elsewhere, monkeypatch):
    (elsewhere / "kept.csv").write_text("mine")
    monkeypatch.setattr("nqm.cli.options.os.access", lambda path, mode: not str(path).endswith(("kept.csv", "closed")))
    monkeypatch.setattr("nqm.search.steps_to_target", None)
    (elsewhere / "closed").mkdir()
    for name, part in (("kept.csv", "no permission to write 'kept.csv'"), ("closed/new.csv", "there is no permission")):
        assert part in told(call("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", name))
    assert (elsewhere / "kept.csv").read_text() == "mine"


def test_the_answer_is_printed_even_if_a_file_cannot_be_written(monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device", "run.csv")

    monkeypatch.setattr("nqm.cli.output.with_folder", full)
    result = call("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "run.csv", "--spectrum", SMALL, "--json")
    assert result.exit_code == 1
    assert len(strict(result.stdout)["loss"]) == 6
    assert "the device is full, and 'run.csv' could not be written" in result.stderr


def test_a_file_that_cannot_be_written(elsewhere):
    (elsewhere / "file").write_text("")
    assert "file" in told(call("curve", "SGD(0.1)", "-b", 8, "--steps", 5, "--csv", "file/x.csv"))
    assert "file" in told(call("paper", "--out", "file", "--only", "fig2"))


NUMBERS = st.sampled_from(
    ["0.1", "1", "1.999", "2", "1e-12", "1e300", "1e-300", "5e-324", "0", "-1", "inf", "0.999999"]
)
SPECTRA = st.sampled_from(
    ["power_law(20)", "Spectrum([1])", "power_law(9, exponent=20)", "power_law(9, exponent=-5)", "Spectrum([1, 1])",
     "Spectrum([1e-300, 1e300])",
     "Spectrum([1], c=0)", "Spectrum([1], s=0)", "Spectrum([1], count=0)", "Spectrum([1e150])"]
)  # fmt: skip
WRAPPERS = st.sampled_from(
    ["{}", "EMA({}, {n})", "Lookahead({}, {n}, 3)", "Polyak({}, {n})", "Preconditioned({}, {n})"]
)
METHODS = st.sampled_from(["SGD({n})", "HeavyBall({n}, {m})", "Nesterov({n}, {m})", "ScheduleFree({n}, {m})"])


@pytest.mark.slow
@given(METHODS, WRAPPERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, SPECTRA, st.booleans())
def test_whatever_the_numbers_there_is_an_answer_or_a_sentence(method, wrapper, n, m, B, target, spectrum, curve):
    optimizer = wrapper.format(method.format(n=n, m=m), n=m)
    goal = ("curve", "--steps", 99) if curve else ("steps", "--target", target, "--max-steps", 99)
    result = call(goal[0], optimizer, "-b", B, *goal[1:], "--spectrum", spectrum, "--json")
    assert result.exit_code in (0, 1, 2), result.output
    if result.exit_code == 2:
        told(result)
    else:
        strict(result.stdout)
        assert result.stderr == ""
