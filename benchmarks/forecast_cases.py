"""Logs of runs whose law is known: the exact engine on a quadratic that has the two densities of the law, with scatter."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nqm import SGD, Quadratic, Schedule, Spectrum
from nqm.engine.schedule import constant, cosine, linear, step
from nqm.logs import Log
from nqm.types import Array

STEPS = 6000
POINTS = 150  # logged points of a run
PEAK = 0.1
# Relative standard deviation of what all points of one run have in common: each case has one between these, around the 0.0004 that
# published runs of one schedule differ by. A fit does not know it.
OFFSETS = (0.0002, 0.0008)
SCATTER = 0.0004  # relative standard deviation of each point beside it
NODES = 120  # of each density, evenly spaced in log h; half as many change no loss by 1e-9
SCHEDULES: dict[str, Schedule] = {
    "constant": constant(STEPS),
    "cosine": cosine(STEPS, 0.1),
    "step": step(STEPS, 0.3, [STEPS // 2]),
    "wsd": constant(STEPS * 4 // 5) + linear(STEPS // 5),
}


@dataclass(frozen=True)
class Truth:
    """The parameters of the law for SGD, as its docstring names them."""

    floor: float
    A: float
    alpha: float
    s0: float
    N: float
    C: float

    @classmethod
    def random(cls, rng: np.random.Generator) -> Truth:
        """Parameters in the range of published runs; noise of the fastest curvatures lives 10 to 50 steps.

        At the peak rate the noise is 3 to 10% of the floor, and lr C is at most 0.05: SGD forgets (1 - lr h)^2 in a step, and
        the law exp(-2 lr h).
        """
        floor = rng.uniform(2, 4)
        speed = math.exp(rng.uniform(math.log(0.02), math.log(0.1)))  # 2 C lr
        C = speed / (2 * PEAK)
        noise = floor * rng.uniform(0.03, 0.1)
        time = PEAK * STEPS
        N = noise * 2 * C / (PEAK * math.log1p(2 * C * time))
        s0 = time * math.exp(rng.uniform(math.log(0.005), math.log(0.05)))
        return cls(floor, floor * rng.uniform(0.5, 2), rng.uniform(0.35, 0.9), s0, N, C)

    def problem(self) -> Quadratic:
        """A quadratic whose expected loss above the floor is the law: modes of the signal without noise, and of noise alone."""
        # Both densities by the trapezoidal rule in log h, which is exact to rounding for such smooth and peaked functions.
        # The signal's reaches far down: the mass below h is (2 h s0)^alpha.
        low = np.log(1e-9) / self.alpha
        x, dx = np.linspace(low, math.log(40), NODES, retstep=True)
        signal_h = np.exp(x) / (2 * self.s0)
        signal = self.A * np.exp(self.alpha * x - np.exp(x)) * dx / math.gamma(self.alpha)
        y, dy = np.linspace(np.log(1e-9), math.log(40), NODES, retstep=True)
        noise_h = self.C * np.exp(y)
        noise = self.N * np.exp(y - np.exp(y)) * dy
        h = np.append(signal_h, noise_h)
        s = np.append(2 * signal / signal_h, np.zeros(NODES))
        c = np.append(np.zeros(NODES), 2 * noise / noise_h)
        return Quadratic(Spectrum(h, c, s))

    def losses(self, schedule: Schedule, times: Array) -> Array:
        """Expected losses of SGD at some steps of a schedule, floor included."""
        return self.floor + np.asarray(self.problem().run(SGD(PEAK), 1, times.tolist(), schedule=schedule).loss)


def made_logs(truth: Truth, rng: np.random.Generator) -> dict[str, Log]:
    """A log under each schedule, with an offset of each run and scatter of each point."""
    times = np.linspace(0, STEPS, POINTS + 1).astype(int)[1:]
    logs, offset = {}, math.exp(rng.uniform(*np.log(OFFSETS)))
    for name, schedule in SCHEDULES.items():
        error = offset * rng.standard_normal() + SCATTER * rng.standard_normal(POINTS)
        rates = PEAK * schedule.multipliers("lr", STEPS)
        loss = truth.losses(schedule, times) * np.exp(error)
        logs[name] = Log(times, loss, rates, optimizer="SGD", name=name)
    return logs
