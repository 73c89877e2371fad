"""What a user sees who asks Python for names, and text where an object is asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import nqm
from nqm import (
    EMA,
    SGD,
    Axis,
    HeavyBall,
    LeastSquares,
    Optimizer,
    Polyak,
    Quadratic,
    Spectrum,
    Wrong,
    check_optimizer,
    cosine,
    optimal_schedule,
    phase_map,
    steps_to_target,
    sweep,
    tune,
    warmup,
)

PROBLEM = Quadratic(Spectrum.power_law(50))
REGRESSION = LeastSquares(Spectrum.power_law(20), label_noise=1.0)
BALL, BALL_TEXT = HeavyBall(0.1, 0.5), "HeavyBall(0.1, momentum=0.5)"
PLAN, PLAN_TEXT = warmup(5) + cosine(45), "warmup(5) + cosine(45)"


def public(thing: object) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


def test_rooms_are_imported_when_they_are_used() -> None:
    code = "import nqm, sys; before = set(sys.modules); nqm.{room}; print('nqm.{room}' in before, 'nqm.{room}' in sys.modules)"
    for room in ("logs", "nets", "lab", "paper"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(room=room)], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["False", "True"]
    assert nqm.logs.read_logs is nqm.logs.reading.read_logs
    assert {"logs", "nets", "lab", "tune", "SGD"} <= set(dir(nqm))
    assert "engine" not in dir(nqm)
    with pytest.raises(AttributeError, match="module 'nqm' has no attribute 'log'"):
        _ = nqm.log  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", ["logs", "nets", "lab"])
def test_a_room_lists_what_is_for_users(room: str) -> None:
    module = getattr(nqm, room)
    assert dir(module) == sorted(module.__all__)


def test_rooms_list_what_one_looks_for() -> None:
    assert {"Monitor", "fit", "Network", "train"} <= set(dir(nqm.nets))
    assert {"Log", "read_logs", "forecast"} <= set(dir(nqm.logs))


def test_a_class_lists_what_is_for_users() -> None:
    assert public(SGD) == ["effective_lr", "has_mean_field", "linear", "lr"]
    assert public(EMA(SGD(0.1))) == public(EMA) == ["decay", "effective_lr", "has_mean_field", "inner", "linear"]
    for problem in (Quadratic, PROBLEM, LeastSquares):
        assert {"run", "sample", "losses", "floor", "stability_limit", "spectrum"} <= set(public(problem))
        assert len(public(problem)) <= 13
    assert {"additive", "label_noise"} <= set(public(LeastSquares))
    assert public(Axis) == ["high", "low", "n", "name", "spaced"]
    assert {"steps", "loss", "signal", "noise", "plot", "table"} <= set(public(nqm.Run))
    assert {"system", "initial", "readout", "update"} <= set(public(Optimizer))  # for those who write their own


def test_a_class_of_ones_own_lists_what_it_defines() -> None:
    @dataclass(frozen=True)
    class Mine(HeavyBall):
        def helper(self) -> int:
            return 1

    assert set(public(Mine)) == {*public(HeavyBall), "helper"}


CALLS: dict[str, Callable] = {
    "run": lambda o, s: PROBLEM.run(o, 16, 50, s).loss,
    "sample": lambda o, s: PROBLEM.sample(o, 16, 50, s, replicas=4, workers=1).loss,
    "moments": lambda o, s: PROBLEM.moments(o, 50, 16, s),
    "losses": lambda o, s: PROBLEM.losses(o, 50, 16, s),
    "floor": lambda o, s: PROBLEM.floor(o, 16, s),
    "stability_limit": lambda o, s: PROBLEM.stability_limit(o, 16),
    "least squares": lambda o, s: REGRESSION.run(o, 16, 50, s).loss,
    "steps_to_target": lambda o, s: steps_to_target(PROBLEM, o, 64, 2.0, s).steps,
    "tune": lambda o, s: tune(PROBLEM, o, 64, 1.0).steps,
    "sweep": lambda o, s: sweep(PROBLEM, o, [16, 64], target=1.0).steps,
    "optimal_schedule": lambda o, s: optimal_schedule(PROBLEM, o, 64, 1.0, pieces=2).steps,
    "phase_map": lambda o, s: (
        phase_map(PROBLEM, o, Axis("lr", 0.1, 1, 2), Axis("momentum", 0.1, 0.5, 2), 64, target=1.0).steps
    ),
    "check_optimizer": lambda o, s: [found.passed for found in check_optimizer(o)],
    "wrapper": lambda o, s: PROBLEM.run(Polyak(EMA(o, 0.9), 0.5), 16, 50).loss,
}
FREE = ("tune", "sweep", "optimal_schedule")


@pytest.mark.parametrize("name", CALLS)
def test_text_is_read_where_an_object_is_asked_for(name: str) -> None:
    ball, text = (HeavyBall(momentum=0.5), "HeavyBall(momentum=0.5)") if name in FREE else (BALL, BALL_TEXT)
    assert np.array_equal(CALLS[name](text, PLAN_TEXT), CALLS[name](ball, PLAN))


@pytest.mark.parametrize("name", CALLS)
def test_text_that_cannot_be_read_is_refused_with_the_sentence_of_the_parser(name: str) -> None:
    with pytest.raises(Wrong, match=r"there is no optimizer 'HevyBall' \(did you mean HeavyBall\?\)") as caught:
        CALLS[name]("HevyBall(0.1)", None)
    assert caught.value.argument == ("inner" if name == "wrapper" else "optimizer")
    with pytest.raises(Wrong, match="imported"):
        CALLS[name]("os:system('ls')", None)  # Nothing that is text is imported or evaluated.


def test_a_schedule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Wrong, match=r"there is no schedule 'cosin' \(did you mean cosine\?\)") as caught:
        PROBLEM.run("SGD(0.1)", 16, 50, "cosin(50)")
    assert caught.value.argument == "schedule"
    with pytest.raises(Wrong, match="run needs every hyper-parameter set, but lr of SGD"):
        PROBLEM.run("SGD", 16, 50)


@pytest.mark.slow
def test_networks_and_forecasts_read_text_too() -> None:
    pytest.importorskip("torch")
    from nqm.logs import forecast, read_logs
    from nqm.nets import checkpoints, fit, workload

    network = workload("digits").network(50, examples=200)
    trained = [network.run(o, 50, 10, s, seeds=1).loss for o, s in ((BALL, PLAN), (BALL_TEXT, PLAN_TEXT))]
    assert np.array_equal(*trained)
    found = fit(network)
    assert np.array_equal(found.predict(BALL_TEXT, 50, 20, PLAN_TEXT).loss, found.predict(BALL, 50, 20, PLAN).loss)
    low = 0.9 * found.loss
    hits = [found.first_hits(o, 50, low, replicas=8).steps for o in (BALL, BALL_TEXT)]
    assert np.array_equal(*hits)
    assert found.advise(50, low, "SGD").steps == found.advise(50, low, SGD()).steps
    assert [at.step for at in checkpoints(network, "SGD(0.1)", 50, [0, 2])] == [50, 52]
    with pytest.raises(Wrong, match=r"there is no optimizer 'KFACC'.*KFAC"):
        found.predict("KFACC(0.1)", 50, 20)
    known = forecast(read_logs("example"))
    assert known.predict("cosine(300)", peak=1e-3).loss[-1] == known.predict(cosine(300), peak=1e-3).loss[-1]
