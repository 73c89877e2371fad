"""The law of a forecast a second time: a plain loop over single steps, and sums over many curvatures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nqm.logs.law import NAMES, LossLaw, RateMetric

TYPICAL = {"floor": 3.0, "A": 2.5, "alpha": 0.55, "s0": 1.7, "N": 9.0, "C": 4.0, "k": 1.1, "r0": 0.002}
METRICS = (RateMetric("norm", 0.1), RateMetric("norm", 0.0), RateMetric("half"), RateMetric("plain"))


def law_of(metric: RateMetric, exponent: float = 1.0, **changed: float) -> LossLaw:
    """A law with some of the parameters above, and others changed."""
    values = {**TYPICAL, **changed}
    return LossLaw(metric, np.log([values[name] for name in NAMES]), exponent)


def effective_rates(
    rates: Sequence[float], ratios: Sequence[float], metric: RateMetric, r0: float, continuous: bool
) -> list[float]:
    """The effective rate of each step.

    The weight norm follows the docstring's recursion, with the norm before the step. If ``continuous``, it follows the
    recursion's differential equation, d(R^2)/dt = lr^2 - 2 lr wd R^2, with the norm in the middle of the step.
    """
    found, square, wd = [], r0, metric.weight_decay
    for lr, ratio in zip(rates, ratios, strict=True):
        if metric.kind == "plain":
            found.append(lr)
        elif metric.kind == "half":
            found.append(lr / math.sqrt(max(rates)) * math.sqrt(ratio))
        elif continuous:
            q = math.exp(-lr * wd)  # over half a step
            half = lr**2 / 2 if lr * wd < 1e-12 else lr * (1 - q) / (2 * wd)
            middle = square * q + half
            found.append(lr / math.sqrt(middle) * math.sqrt(ratio))
            square = middle * q + half
        else:
            found.append(lr / math.sqrt(square) * math.sqrt(ratio))
            square = square * (1 - lr * wd) ** 2 + lr**2
    return found


def plain_loop(
    law: LossLaw,
    rates: Sequence[float],
    times: Sequence[int],
    ratios: Sequence[float] | None = None,
    continuous: bool = False,
) -> np.ndarray:
    """The loss at some steps, from sums over all single steps before each.

    A step of effective rate eta leaves eta times the integral of K over its own eta: K is not constant within it.
    """
    ratios = [1.0] * len(rates) if ratios is None else ratios
    p: Mapping[str, float] = {name: law[name] for name in NAMES}
    etas = effective_rates(rates, ratios, law.metric, p["r0"], continuous)
    losses = []
    for t in times:
        S = math.fsum(etas[:t])
        z, passed = 0.0, 0.0
        for eta, ratio in zip(etas[:t], ratios, strict=False):
            u0 = S - passed
            passed += eta
            u1 = max(S - passed, 0.0)
            # The part from u1 to u0 of the integral of (1 + 2 C u)^-b is (1 + 2 C u1)^(1-b) (q^(1-b) - 1) / (1-b) / (2 C).
            q, rest = math.log1p(2 * p["C"] * (u0 - u1) / (1 + 2 * p["C"] * u1)), 1 - law.exponent
            part = (1 + 2 * p["C"] * u1) ** rest * (math.expm1(rest * q) / rest if rest else q)
            z += eta / ratio * part / (2 * p["C"])
        z *= p["N"]
        losses.append(p["floor"] + p["A"] * (1 + S / p["s0"]) ** -p["alpha"] + z / (1 + p["k"] * z))
    return np.array(losses)


def curvature_sums(law: LossLaw, etas: Sequence[float], ratios: Sequence[float]) -> tuple[float, float]:
    """Signal and noise z after the steps, from many curvatures that are stepped one by one.

    The signal has the density h^(alpha - 1) exp(-2 h s0) and is forgotten as exp(-2 h u). A step adds eta^2 to each
    curvature of the noise, whose density is that of a gamma law of shape b and scale C, evenly over its own eta.
    """
    x, dx = np.linspace(math.log(1e-12) / min(law["alpha"], 1.0), math.log(50), 4000, retstep=True)
    h = np.exp(x) / (2 * law["s0"])
    weight = np.exp(law["alpha"] * x - np.exp(x)) * dx / math.gamma(law["alpha"])
    b = law.exponent
    y, dy = np.linspace(math.log(1e-12) / min(b, 1.0), math.log(50), 4000, retstep=True)
    g, share = law["C"] * np.exp(y), np.exp(b * y - np.exp(y)) * dy / math.gamma(b)
    signal, noise = np.ones_like(h), np.zeros_like(g)
    for eta, ratio in zip(etas, ratios, strict=True):
        signal *= np.exp(-2 * h * eta)
        noise = noise * np.exp(-2 * g * eta) - eta / ratio * np.expm1(-2 * g * eta) / (2 * g)
    return law["A"] * float(weight @ signal), law["N"] * float(share @ noise)
