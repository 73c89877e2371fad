"""Optimizers that are sampled, and sampled replicas beside exact runs, on the command line and in pictures."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nqm import SGD, Adam, Quadratic, Spectrum
from nqm.cli import main

SMALL = ["--spectrum", "power_law(30)"]


def call(*arguments: str) -> Any:
    return CliRunner().invoke(main, [*arguments, *SMALL], catch_exceptions=False)


def test_a_curve_of_adam_is_its_mean_field_with_replicas_beside_it() -> None:
    line = ["curve", "Adam(0.05, 0.9)", "-b", "16", "--steps", "20", "--json"]
    run = Quadratic(Spectrum.power_law(30)).run(Adam(0.05, 0.9), 16, 20)
    alone, both = json.loads(call(*line).output), json.loads(call(*line, "--replicas", "40").output)
    assert alone["loss"] == both["loss"] == run.loss.tolist()
    assert alone["method"] == "mean field"
    assert "sampled" not in alone
    assert both["sampled"]["method"] == "sampled"


def test_a_curve_of_adam_is_sampled_under_another_law() -> None:
    line = ["curve", "Adam(0.05, 0.9)", "-b", "16", "--steps", "20", "--replicas", "50", "--seed", "3"]
    found = json.loads(call(*line, "--noise", "student_t(5)", "--json").output)
    problem = Quadratic(Spectrum.power_law(30))
    run = problem.sample(Adam(0.05, 0.9), 16, 20, replicas=50, seed=3, noise="student_t(5)")
    assert found["loss"] == run.loss.tolist()
    assert found["stderr"] == pytest.approx(np.asarray(run.stderr).tolist())
    assert found["replicas"] == 50
    assert found["signal"] is None
    assert list(found["quantiles"]) == ["0.1", "0.5", "0.9"]
    table = call(*line, "--noise", "laplace").output
    assert "quantile 0.5" in table
    assert "mean of 50 replicas" in table
    rows = list(csv.DictReader(io.StringIO(call(*line, "--noise", "laplace", "--csv", "-").output)))
    assert list(rows[0]) == ["steps", "loss", "stderr", "quantile_0.1", "quantile_0.5", "quantile_0.9"]


def test_replicas_stand_beside_an_exact_run(tmp_path: Path) -> None:
    line = ["curve", "SGD(0.5)", "-b", "16", "--steps", "20", "--sample", "40"]
    found = json.loads(call(*line, "--json").output)
    exact = Quadratic(Spectrum.power_law(30)).run(SGD(0.5), 16, 20)
    assert found["loss"] == exact.loss.tolist()
    z = (np.array(found["sampled"]["loss"]) - exact.loss) / np.array(found["sampled"]["stderr"])
    assert np.abs(z).max() < 4
    rows = list(csv.DictReader(io.StringIO(call(*line, "--csv", "-").output)))
    assert {"loss", "signal", "sampled", "stderr"} < set(rows[0])
    done = call(*line, "--plot", str(tmp_path / "both.png"))
    assert done.exit_code == 0
    assert (tmp_path / "both.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_sweep_of_adam_has_errors(tmp_path: Path) -> None:
    line = ["sweep", "Adam(beta1=0.9)", "SGD", "--target", "0.3", "--batch-sizes", "16,64", "--sampled"]
    done = call(*line, "--plot", str(tmp_path / "sweep.png"))
    assert done.exit_code == 0
    assert "steps stderr" in done.output
    assert (tmp_path / "sweep.png").stat().st_size > 5000
    adam, sgd = json.loads(call(*line, "--json").output)["sweeps"]
    assert len(adam["steps_stderr"]) == 2
    assert sgd["steps_stderr"] is None


def test_tune_says_its_error() -> None:
    done = call("tune", "Sign", "-b", "16", "--steps", "30", "--sampled")
    assert done.exit_code == 0
    assert "+-" in done.output
    assert "stderr" in done.output


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (
            ["steps", "EstimatedPreconditioned(SGD(0.1), 0.5, 4)", "-b", "4", "--target", "0.1"],
            "neither exact moments nor a mean field",
        ),
        (
            ["schedule", "EstimatedPreconditioned(SGD, 0.5, 4)", "-b", "4", "--steps", "10"],
            "neither exact moments nor a mean field",
        ),
        (["curve", "Adam(0.1, beta1=free)", "-b", "4", "--steps", "10"], "beta1 of Adam(lr=0.1, beta1=free) is free"),
        (["curve", "SGD(0.1)", "-b", "4", "--steps", "10", "--sample", "0"], "replicas must be"),
        (["curve", "Sign(0.1)", "-b", "4", "--steps", "10", "--noise", "gausian"], "did you mean gaussian"),
        (
            ["curve", "Sign(0.1)", "-b", "4", "--steps", "10", "--seed", "-1"],
            "'--seed': it must be a whole number from 0",
        ),
    ],
)
def test_wrong_calls_are_one_sentence(line: list[str], part: str) -> None:
    done = call(*line)
    assert done.exit_code == 2
    assert part in done.output
    assert "Traceback" not in done.output


def test_pictures_of_sampled_runs(tmp_path: Path) -> None:
    problem = Quadratic(Spectrum.power_law(30))
    run = problem.sample(Adam(0.05, 0.9), 16, 40)
    figure = run.plot(str(tmp_path / "adam.png"))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["mean of 64 replicas", "10% to 90% of replicas"]
    assert problem.sample(Adam(0.05, 0.9), 16, [3], quantiles=[]).plot().axes
    diverged = problem.sample(SGD(3.0), 16, 3000)
    assert not diverged.outcome.ok
    assert diverged.plot().axes


def test_a_law_of_noise_is_never_ignored() -> None:
    line = ["curve", "SGD(0.5)", "-b", "16", "--steps", "5", "--json"]
    assert "sampled" not in json.loads(call(*line).output)
    found = json.loads(call(*line, "--noise", "laplace").output)
    assert found["sampled"]["replicas"] == 64
    refused = call(*line, "--noise", "foo(3)")
    assert refused.exit_code == 2
    assert "there is no law 'foo'" in refused.output


def test_heavy_tails_are_said_beside_an_exact_run() -> None:
    output = call("curve", "SGD(0.1)", "-b", "4", "--steps", "20", "--noise", "cauchy").output
    assert "no mean and no variance" in output


def test_a_curve_in_another_basis() -> None:
    line = ["curve", "Sign(0.01)", "-b", "16", "--steps", "20", "--json"]
    losses = [json.loads(call(*line, *extra).output)["loss"][-1] for extra in ([], ["--rotation", "3"])]
    assert abs(losses[1] / losses[0] - 1) > 0.01


@pytest.mark.slow
def test_tuning_takes_a_law_a_seed_and_a_basis() -> None:
    line = ["tune", "Sign(0.03)", "-b", "64", "--steps", "40", "--sampled", "--json"]
    plain, *others = (
        json.loads(call(*line, *more).output)["loss"]
        for more in ([], ["--noise", "student_t(2.5)"], ["--seed", "7"], ["--rotation", "3"])
    )
    assert len({plain, *others}) == 4
    swept = json.loads(
        call("sweep", "Sign", "--target", "0.4", "--batch-sizes", "64", "--rotation", "3", "--json").output
    )
    aligned = json.loads(call("sweep", "Sign", "--target", "0.4", "--batch-sizes", "64", "--json").output)
    assert swept["sweeps"][0]["steps"] != aligned["sweeps"][0]["steps"]
