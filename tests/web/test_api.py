"""Endpoints answer what the library answers, by calls that share nothing with the endpoint but the engine."""

from __future__ import annotations

import numpy as np
import pytest
from asking import HEAVY, PROBLEM, SMALL, close, post

import nqm
from nqm.web.limits import SERVER


def test_a_curve_is_the_run() -> None:
    answer = post("curve", problem=SMALL, optimizer=HEAVY, batch_size="2^5", steps=1000)
    run = PROBLEM.run(nqm.HeavyBall(0.1, 0.875), 32, 1000)
    assert answer["loss"] == run.loss.tolist()
    assert answer["steps"] == run.steps.tolist()
    assert answer["noise_loss"] == (run.noise / 32).tolist()
    assert np.add(answer["signal"], answer["noise_loss"]) == pytest.approx(run.loss, rel=1e-13)
    assert np.sum(answer["band_signal"], 0) + np.sum(answer["band_noise_loss"], 0) == pytest.approx(run.loss, rel=1e-12)
    assert answer["stability_limit"] == pytest.approx(2 * 1.875)
    assert answer["floor"] == run.floor
    assert answer["optimizer"] == "HeavyBall(lr=0.1, momentum=0.875)"
    assert answer["multipliers"] is None


def test_a_quick_curve_is_good_to_a_millionth() -> None:
    body = {
        "problem": {"spectrum": "power_law(3000)"},
        "optimizer": "EMA(HeavyBall(0.1, 0.9), 0.99)",
        "batch_size": 64,
        "steps": 5000,
    }
    exact, quick = post("curve", **body), post("curve", **body, quick=True)
    assert quick["quick"]
    assert not exact["quick"]
    assert quick["loss"] != exact["loss"]
    assert quick["loss"] == pytest.approx(exact["loss"], rel=1e-5)


def test_a_long_curve_of_a_regression_is_on_nodes() -> None:
    problem = {"spectrum": "power_law(2000, noise_exponent=2)", "kind": "least_squares", "label_noise": 0.5}
    exact = nqm.LeastSquares(nqm.Spectrum.power_law(2000), 0.5)
    body = {"problem": problem, "optimizer": "SGD(0.1)", "batch_size": 4, "points": 4}
    for steps, quick, nodes in [(200, False, False), (200, True, True), (60_000, False, True)]:
        answer = post("curve", **body, steps=steps, quick=quick)
        assert answer["quick"] is nodes
        assert (answer["stability_limit"] is None) is quick
        if steps == 200:
            assert answer["loss"] == pytest.approx(exact.run(nqm.SGD(0.1), 4, 200, points=4).loss, rel=1e-9)
    assert answer["stability_limit"] == pytest.approx(exact.stability_limit(nqm.SGD(), 4), rel=1e-8)


def test_a_curve_with_pieces_and_one_with_text() -> None:
    pieces = {"lengths": [10, 20], "lr": [1, 0.5], "batch_size": [1, 2]}
    answer = post(
        "curve", problem=SMALL, optimizer="SGD(0.5)", batch_size=8, steps=40, grid="linear", points=41, schedule=pieces
    )
    plan = nqm.Schedule([10, 20], lr=[1, 0.5], batch_size=[1, 2])
    assert answer["loss"] == PROBLEM.run(nqm.SGD(0.5), 8, 40, plan, "linear", 41).loss.tolist()
    assert answer["multipliers"]["lr"] == plan.multipliers("lr", 41).tolist()
    text = "step(30, 0.5, at=[10]) & step(30, 2, at=[10]).on('batch_size')"
    again = post(
        "curve", problem=SMALL, optimizer="SGD(0.5)", batch_size=8, steps=40, grid="linear", points=41, schedule=text
    )
    assert again["loss"] == answer["loss"]


def test_a_curve_by_mean_field() -> None:
    answer = post("curve", problem=SMALL, optimizer="Adam(0.01, 0.9)", batch_size=8, steps=30)
    run = PROBLEM.run(nqm.Adam(0.01, 0.9), 8, 30)
    assert answer["loss"] == pytest.approx(run.loss.tolist())
    assert answer["method"] == "mean field"
    assert answer["replicas"] is answer["stability_limit"] is None


def test_a_sampled_curve() -> None:
    text, rule = "EstimatedPreconditioned(SGD(0.1), 0.5, 4)", nqm.EstimatedPreconditioned(nqm.SGD(0.1), 0.5, 4)
    answer = post("curve", problem=SMALL, optimizer=text, batch_size=8, steps=30, replicas=16, seed=3)
    run = PROBLEM.sample(rule, 8, 30, replicas=16, seed=3)
    assert answer["loss"] == run.loss.tolist()
    assert answer["replicas"] == 16
    assert answer["signal"] is answer["noise_loss"] is answer["stability_limit"] is None


def test_a_diverging_curve_is_an_answer() -> None:
    answer = post("curve", problem=SMALL, optimizer="SGD(3)", batch_size=8, steps=10_000)
    assert answer["outcome"] == "diverged"
    assert "lower the learning rate below 2" in answer["message"]
    assert answer["loss"][-1] is None


def test_steps_tune_and_schedule() -> None:
    hit = nqm.steps_to_target(PROBLEM, nqm.SGD(0.1), 64, 0.1)
    answer = post("steps", problem=SMALL, optimizer="SGD(0.1)", batch_size=64, target=0.1)
    assert {k: answer[k] for k in hit.to_dict()} == hit.to_dict()
    tuned = nqm.tune(PROBLEM, nqm.EMA(nqm.SGD()), 64, examples=1e4).to_dict()
    answer = post("tune", problem=SMALL, optimizer="EMA(SGD)", batch_size=64, examples=1e4)
    assert close({k: answer[k] for k in tuned}, tuned)
    best = nqm.optimal_schedule(PROBLEM, nqm.SGD(), 8, 0.05, pieces=4)
    answer = post("schedule", problem=SMALL, optimizer="SGD", batch_size=8, target=0.05, pieces=4)
    assert answer["steps"] == best.steps
    again = post(
        "curve",
        problem=SMALL,
        optimizer=answer["optimizer"],
        batch_size=8,
        steps=best.steps,
        schedule=answer["schedule"],
        points=2,
    )
    assert again["loss"][-1] == pytest.approx(best.loss, rel=1e-5)  # the optimizer's text has six digits


def test_a_sweep_is_the_sweep() -> None:
    answer = post(
        "sweep", problem=SMALL, optimizers=["SGD", "HeavyBall(momentum=0.5)"], target=0.05, batch_sizes=[4, 64, 1024]
    )
    for shown, optimizer in zip(answer["sweeps"], (nqm.SGD(), nqm.HeavyBall(momentum=0.5)), strict=True):
        found = nqm.sweep(PROBLEM, optimizer, [4, 64, 1024], target=0.05)
        assert close({k: shown[k] for k in found.to_dict()}, found.to_dict())
        assert shown["settings"]["lr"] == shown["lr"]
        assert shown["bounds"]["bayes"] == pytest.approx(found.bounds()["bayes"])
        fewest = min([*shown["examples"], *(row["examples"] for row in shown["added"])])
        assert np.multiply(shown["perfect_scaling"], shown["batch_sizes"]) == pytest.approx(fewest)
    assert answer["sweeps"][1]["settings"]["momentum"] == [0.5] * 3


def test_a_sweep_that_reaches_nothing() -> None:
    (shown,) = post("sweep", problem=SMALL, optimizers=["SGD(1)"], target=1e-9, batch_sizes="4,16")["sweeps"]
    assert shown["steps"] == shown["perfect_scaling"] == [None, None]
    assert shown["settings"] == {}


def test_a_map_takes_a_setting_that_an_axis_replaces() -> None:
    axes = {
        "x": {"name": "lr", "low": 0.01, "high": 4, "n": 5},
        "y": {"name": "momentum", "low": 0, "high": "1 - 2^-5", "n": 3},
    }
    answer = post("map", problem=SMALL, optimizer=HEAVY, target=0.05, batch_size=64, **axes)
    x, y = nqm.Axis("lr", 0.01, 4, 5), nqm.Axis("momentum", 0, 1 - 2**-5, 3)
    found = nqm.phase_map(PROBLEM, nqm.HeavyBall(), x, y, 64, target=0.05)
    assert {k: answer[k] for k in found.to_dict()} == found.to_dict()


def test_what_a_spectrum_is_made_of() -> None:
    answer = post("spectrum")
    paper = nqm.Spectrum.power_law(10_000)
    assert answer["initial_loss"] == paper.initial_loss
    assert answer["noise_scale"] == pytest.approx(paper.trace / (paper.h**2).sum())
    shown = answer["nodes_shown"]
    assert len(shown["h"]) <= SERVER.nodes_shown
    assert shown["h"][0] == 1
    assert shown["h"][-1] == 1e-4
    assert sum(answer["bands"]["signal"]) == pytest.approx(paper.initial_loss)
    assert sum(answer["bands"]["count"]) == 10_000
    assert answer["fit"] is None
