"""The exact verbs take a saved forecast, with the numbers of the library, and refuse what it does not answer."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from cli.shell import call, strict
from known_laws import known_forecast, saved_forecast

from nqm import SGD, steps_to_target, sweep, tune
from nqm.engine.schedule import cosine

PROBLEM = known_forecast("norm").problem


@pytest.fixture(autouse=True)
def saved(elsewhere: Path) -> Path:
    saved_forecast("norm", elsewhere / "forecast.json")
    return elsewhere


def asked(*words: str) -> dict[str, object]:
    done = call(*words, "--forecast", "forecast.json", "--json")
    assert done.exit_code == 0, done.stderr
    return strict(done.stdout)


@pytest.mark.slow
def test_the_verbs_have_the_numbers_of_the_library() -> None:
    curve = asked("curve", "SGD(0.001)", "-b", "64", "--steps", "5000", "--schedule", "cosine(5000)", "--points", "20")
    run = PROBLEM.run(SGD(0.001), 64, 5000, cosine(5000), points=20)
    assert curve["loss"] == pytest.approx(run.loss.tolist(), rel=1e-12)
    assert curve["floor"] == pytest.approx(2.5)
    assert asked("steps", "SGD(0.001)", "-b", "64", "--target", "3")["steps"] == (
        steps_to_target(PROBLEM, SGD(0.001), 64, 3.0).steps
    )
    assert asked("tune", "SGD", "-b", "64", "--target", "3")["steps"] == tune(PROBLEM, SGD(), 64, target=3.0).steps
    (swept,) = asked("sweep", "SGD", "--target", "3", "--batch-sizes", "32,64")["sweeps"]  # type: ignore[misc]
    assert swept["steps"] == sweep(PROBLEM, SGD(), [32, 64], target=3.0).steps.tolist()


def test_a_curve_is_printed_and_drawn() -> None:
    done = call(
        "curve", "SGD(0.003)", "-b", "64", "--steps", "5000", "--forecast", "forecast.json", "--plot", "curve.png"
    )
    assert done.exit_code == 0
    assert "outside the logs: its peak rate 0.003 is 1.5 times the largest of the logs" in done.stdout
    assert Path("curve.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("HeavyBall(0.1, 0.9)", "-b", "64"), "a forecast answers for the optimizer of its logs, and SGD(lr) stands"),
        (("Adam(0.1)", "-b", "64"), "a forecast answers for the optimizer of its logs, and SGD(lr) stands"),
        (("SGD(0.001)", "-b", "inf"), "a forecast of an adaptive optimizer needs a finite batch size"),
        (("SGD(0.1)", "-b", "64", "--spectrum", "power_law(9)"), "--forecast is a whole problem; omit --spectrum"),
        (("SGD(0.1)", "-b", "64", "--replicas", "3"), "nothing to sample"),
    ],
)
def test_refusals_are_sentences(words: tuple[str, ...], sentence: str) -> None:
    done = call("curve", *words, "--steps", "10", "--forecast", "forecast.json")
    assert done.exit_code == 2
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_files_are_not_confused(saved: Path) -> None:
    done = call("curve", "SGD(0.1)", "-b", "4", "--steps", "9", "--spectrum", "forecast.json")
    assert done.exit_code == 2
    assert "'forecast.json' is a forecast, not a spectrum; give it as --forecast" in " ".join(done.stderr.split())
    (saved / "other.json").write_text("{}")
    done = call("curve", "SGD(0.1)", "-b", "4", "--steps", "9", "--forecast", "other.json")
    assert done.exit_code == 2
    assert "other.json is no forecast" in done.stderr
    assert call("curve", "SGD(0.1)", "-b", "4", "--steps", "9", "--forecast", "none.json").exit_code != 0


def test_logs_without_batch_sizes(saved: Path) -> None:
    saved_forecast("half", saved / "forecast.json", None)
    assert math.isfinite(asked("tune", "SGD", "-b", "1", "--target", "3")["steps"])  # type: ignore[arg-type]
    steps = ("steps", "SGD(0.001)", "-b", "1", "--target", "3", "--forecast", "forecast.json")
    assert "examples" not in call(*steps).stdout  # One batch of these logs has an unknown number of them.
    saved_forecast("half", saved / "sized.json", 64.0)
    assert "examples" in call("steps", "SGD(0.001)", "-b", "64", "--target", "3", "--forecast", "sized.json").stdout
    done = call("sweep", "SGD", "--target", "3", "--batch-sizes", "32,64", "--forecast", "forecast.json")
    assert done.exit_code == 2
    assert "these logs have no batch size" in done.stderr
