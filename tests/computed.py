"""Numbers that sentences of the documentation give, as functions; `prose` has the sentences."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import nqm
from nqm import SGD, LeastSquares, Quadratic, Spectrum
from nqm.lab.compare import findings, read_curves
from nqm.lab.compare.curves import critical as critical_of
from nqm.paper.network_studies import table_of
from nqm.problems.bounds import conjugate_gradient_steps
from nqm.show.tables import column
from nqm.text.objects import parse_optimizer

ROOT = Path(__file__).parents[1]
NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
POWERS = (0, 0.25, 0.5, 0.75)
PAPER = Spectrum.power_law(10_000)
PROBLEM = Quadratic(PAPER)


def number(text: str) -> float:
    return float(text.replace(",", ""))


@cache
def steps(optimizer: str, batch_size: float, target: float = 0.01) -> float:
    """Tuned steps on the paper's problem."""
    return tuned(optimizer, batch_size, target).steps


@cache
def tuned(optimizer: str, batch_size: float, target: float = 0.01) -> Any:
    return nqm.tune(PROBLEM, parse_optimizer(optimizer), batch_size, target)


@cache
def swept(optimizer: str, target: float = 0.01) -> nqm.Sweep:
    return nqm.sweep(PROBLEM, parse_optimizer(optimizer), target=target)


@cache
def critical(optimizer: str, definition: Any = "20%", target: float = 0.01) -> float:
    return swept(optimizer, target).critical_batch_size(definition)


@cache
def pieces(n: int, batch_size: float, optimizer: str = "SGD") -> float:
    """Steps of the best schedule of the learning rate with n pieces."""
    return nqm.optimal_schedule(PROBLEM, parse_optimizer(optimizer), batch_size, 0.01, pieces=n).steps


def measured(name: str, optimizer: str, batch_size: int, field: str = "steps") -> float:
    """A cell of a study's table."""
    rows = table_of(name)
    return next(r[field] for r in rows if (r["optimizer"], r["batch_size"]) == (optimizer, batch_size))


def critical_estimate(name: str, optimizer: str) -> list[float]:
    """The critical batch size of an optimizer in a study, twice perfect scaling, and its interval."""
    curve = next(c for c in read_curves(table_of(name)) if c.name == optimizer)
    found = curve.critical_batch_size("2x")
    return [found.value, found.low, found.high]


def measured_critical(name: str, optimizer: str) -> float:
    """The value of `critical_estimate` alone."""
    return critical_estimate(name, optimizer)[0]


def predicted_critical(name: str, optimizer: str) -> float:
    """The same from the steps that were predicted."""
    rows = [row for row in table_of(name) if row["optimizer"] == optimizer]
    return float(critical_of(column(rows, "batch_size"), column(rows, "predicted"), "2x"))


def finding(name: str, statement: str) -> list[float]:
    """The numbers in what a study found about a statement of the paper, in their order."""
    found = next(one.measured for one in findings(read_curves(table_of(name))) if one.says == statement)
    return [number(text) for text in re.findall(NUMBER, found)]


def adam_over_heavy_ball() -> list[float]:
    """Steps of Adam over those of heavy ball on digits, from batch size 256 on."""
    return [measured("digits", "Adam", B) / measured("digits", "HeavyBall", B) for B in (256, 512, 1024)]


def kfac_option(name: str, batch_size: int, variant: str, field: str) -> float:
    """What ``python -m benchmarks.kfac`` wrote of one variant of K-FAC."""
    with (ROOT / "docs" / "checks" / f"kfac_{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return next(float(r[field]) for r in rows if (int(r["batch_size"]), r["variant"]) == (batch_size, variant))


def step_errors() -> list[float]:
    """By how many percent predicted steps on digits are below and above the measured ones, at most."""
    off = [100 * row["predicted"] / row["steps"] - 100 for row in table_of("digits_checkpoint")]
    return [-min(off), max(off)]


def errors(workload: str, steps: int, low: float = 0.0, high: float = 0.5, column: str = "error") -> np.ndarray:
    """Errors of predictions in percent, as ``nqm check`` wrote them, at rates in this range over the largest curvature."""
    with (ROOT / "docs" / "checks" / f"{workload}.csv").open() as file:
        rows = list(csv.DictReader(file))
    kept = [r for r in rows if float(r["steps"]) == steps and low <= float(r["reach"]) / steps < high]
    return np.abs([100 * float(r[column]) for r in kept])


@cache
def digits_fit() -> Any:
    from nqm.nets import fit, workload

    return fit(workload("digits").network())


@cache
def carried(batch_size: float) -> tuple[float, float, float, float]:
    """The recipe of the choose page: fraction of the critical batch size, batch size and rate on the model, rate on digits."""
    from nqm.nets import advise

    found = advise(digits_fit(), target=0.08, batch_size=64).critical_batch_size
    assert found is not None
    fraction = batch_size / found.value
    there = fraction * critical("SGD", "2x")
    rate = tuned("SGD", there).optimizer.lr
    return fraction, there, rate, rate / digits_fit().spectrum.h.max()


def trained(batch_size: int, rate: float) -> list[float]:
    """A row of the choose page: losses of the digits network after 100 steps at 1/4 to 2 times a rate; at 4 times they rise."""
    from nqm.nets import workload

    network = workload("digits").network()
    runs = [network.run(SGD(rate * f), batch_size, steps=[100], seeds=5) for f in (0.25, 0.5, 1, 2, 4)]
    *losses, far = (float(run.loss[-1]) for run in runs)
    assert far > network.full_loss(), f"{far:.4g} after 100 steps at 4 times the rate"
    return [rate, *losses]


def exact_cg() -> list[float]:
    """Steps of conjugate gradients in exact arithmetic, behind H^-p for each of the paper's p."""
    return [steps for p in POWERS if (steps := conjugate_gradient_steps(PAPER, 0.01, p)) is not None]


def plain_cg(power: float) -> int:
    """Steps of conjugate gradients in plain float64, behind the preconditioner H^-power."""
    h, x = PAPER.h ** (1 - power), PAPER.h ** (power / 2)
    r = d = -h * x
    for step in range(1000):
        if (h * x * x).sum() / 2 <= 0.01:
            return step
        a = (r @ r) / (d @ (h * d))
        x, after = x + a * d, r - a * h * d
        r, d = after, after + (after @ after) / (r @ r) * d
    raise AssertionError("conjugate gradients do not arrive")


def gap(x: float, momentum: float) -> float:
    """Percent by which heavy ball at lr (1 - momentum) and SGD at lr differ at most, on one mode with x = lr h."""
    from nqm.paper.claims import check

    return 100 * check("lr_momentum_interchangeable", settings=[(x, momentum)]).number


def hyperbola() -> list[float]:
    """The product (S / Smin - 1)(E / Emin - 1) at the ends of the sweep."""
    from nqm.paper.claims import check

    table = check("mccandlish_hyperbola").table
    return [table[0]["product"], table[-1]["product"]]


def adam_ratio(batch_size: float) -> float:
    """Steps of tuned Adam without momentum over those of H^-1/2."""
    return steps("Adam(beta1=0)", batch_size) / steps("Preconditioned(SGD(), power=0.5)", batch_size)


def half_life_cost() -> float:
    """0.1 if a fixed beta2 costs less than 0.1% of the steps, and what it costs in percent otherwise."""
    from nqm.paper.claims import check

    return max(0.1, 100 * check("adam_half_life").number)


def surge() -> float:
    """Percent by which the best rate of one step of sign descent falls from its peak, in random axes."""
    from nqm.paper.claims import check

    return 100 * check("adam_rate_surges", axes="random").number


def first_rate() -> float:
    """Rate of the first of fifty pieces of the best schedule at B = 16, behind H^-3/4."""
    found = nqm.optimal_schedule(PROBLEM, nqm.Preconditioned(SGD(), 0.75), 16, 0.01, pieces=50)
    optimizer: Any = found.optimizer
    return optimizer.inner.lr * found.schedule.lr[0]


def at_the_edge() -> float:
    """Share of the best schedule of SGD at B = 1,024 that is spent at the largest rate."""
    found = nqm.optimal_schedule(PROBLEM, SGD(), 1024, 0.01, pieces=10)
    rates = found.schedule.lr
    return float(found.schedule.lengths[rates > 0.99 * rates.max()].sum()) / found.steps


LEAST_SQUARES = LeastSquares(PAPER, label_noise=1.0)
REGRESSION_SIZES = (1, 4, 16, 64, 1024)
CELLS = "| {} | {} | {} | {} | {} |"


@cache
def regression(batch_size: float, target: float, optimizer: nqm.Optimizer = SGD()) -> Any:  # noqa: B008
    return nqm.tune(LEAST_SQUARES, optimizer, batch_size, target)


@cache
def additive(batch_size: float, target: float, optimizer: nqm.Optimizer = SGD()) -> Any:  # noqa: B008
    return nqm.tune(LEAST_SQUARES.additive, optimizer, batch_size, target)


def regression_row(model: Callable[[float, float], Any], target: float) -> list[float]:
    return [model(B, target).steps for B in REGRESSION_SIZES]


def limits(optimizer: nqm.Optimizer) -> list[float]:
    return [LEAST_SQUARES.stability_limit(optimizer, B) for B in REGRESSION_SIZES]


def batch_size_schedule() -> list[float]:
    """Of the best batch-size schedule for 10^6 examples: first and last size, loss, steps."""
    found = nqm.optimal_schedule(PROBLEM, SGD(), 1, examples=1e6, on="batch_size")
    sizes = found.batch_size * np.asarray(found.schedule.batch_size)
    return [sizes[0], sizes[-1], found.loss, found.steps]
