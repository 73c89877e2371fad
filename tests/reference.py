"""The same algorithms, stated a second time: update rules from the literature, run in plain loops.

Nothing here reads an optimizer's matrices. A `Rule` moves any kind of number, so one statement serves three ways:

- `impulses`  the exact response of the reported weights to theta_0 and to every past noise, one unit impulse each;
- `loop`      the dense second-moment recursion ``M <- A M A' + Q`` in float64, A and b found by moving unit vectors;
- `exact`     the same recursion in 50-digit arithmetic, repeated steps by squaring, for hard points.

Each returns (signal, noise): E[weights^2] per unit s, and per unit c / B.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from nqm import Optimizer, Spectrum

Gradient = Callable[[Any], Any]
Settings = Callable[[int], tuple[float, float, float]]  # step -> multipliers of lr, momentum, batch size
DIGITS = 50


def constant(t: int) -> tuple[float, float, float]:
    """No schedule."""
    return 1.0, 1.0, 1.0


class Rule(ABC):
    """One algorithm on one mode; x is the list of what it remembers."""

    period: int = 1  # steps after which the rule is the same again, 0 for never
    changes: tuple[int, ...] = ()  # steps at which the rule becomes another one

    @abstractmethod
    def start(self, theta: Any) -> list[Any]:
        """What it remembers before the first step."""

    @abstractmethod
    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        """Step t, counted from 0; lr and momentum are multipliers. The gradient is asked for once."""

    @abstractmethod
    def weights(self, x: list[Any], t: int) -> Any:
        """The weights whose loss counts after t steps."""

    @abstractmethod
    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        """Go on from other weights, velocities kept."""


class Descent(Rule):
    """Robbins and Monro (1951): theta' = theta - lr g(theta)."""

    def __init__(self, lr: Any) -> None:
        self.lr = lr

    def start(self, theta: Any) -> list[Any]:
        return [theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        return [x[0] - lr * self.lr * gradient(x[0])]

    def weights(self, x: list[Any], t: int) -> Any:
        return x[0]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [theta]


class Momentum(Descent):
    """Polyak (1964), in PyTorch's form: m' = beta m + g(theta), theta' = theta - lr m'."""

    def __init__(self, lr: Any, beta: Any) -> None:
        self.lr, self.beta = lr, beta

    def start(self, theta: Any) -> list[Any]:
        return [theta, 0 * theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        m = momentum * self.beta * x[1] + gradient(x[0])
        return [x[0] - lr * self.lr * m, m]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [theta, x[1]]


class Accelerated(Descent):
    """Nesterov (1983): y = theta + beta (theta - theta_prev), theta' = y - lr g(y)."""

    def __init__(self, lr: Any, beta: Any) -> None:
        self.lr, self.beta = lr, beta

    def start(self, theta: Any) -> list[Any]:
        return [theta, theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        y = x[0] + momentum * self.beta * (x[0] - x[1])
        return [y - lr * self.lr * gradient(y), x[0]]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [theta, theta - (x[0] - x[1])]


class Unscheduled(Rule):
    """Defazio et al. (2024): y = (1 - beta) z + beta x, z' = z - lr g(y), x the mean of z_1 .. z_t."""

    period = 0

    def __init__(self, lr: Any, beta: Any) -> None:
        self.lr, self.beta = lr, beta

    def start(self, theta: Any) -> list[Any]:
        return [theta, theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        beta = momentum * self.beta
        z = x[0] - lr * self.lr * gradient((1 - beta) * x[0] + beta * x[1])
        return [z, (t * x[1] + z) / (t + 1)]

    def weights(self, x: list[Any], t: int) -> Any:
        return x[1]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [theta, theta]


class Around(Rule):
    """A rule around another one, whose memory comes first."""

    def __init__(self, inner: Rule) -> None:
        self.inner = inner
        self.period, self.changes = inner.period, inner.changes


class Power(Around):
    """g -> h^-p g."""

    def __init__(self, inner: Rule, gain: Any) -> None:
        super().__init__(inner)
        self.gain = gain

    def start(self, theta: Any) -> list[Any]:
        return self.inner.start(theta)

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        return self.inner.step(x, lambda theta: self.gain * gradient(theta), t, lr, momentum)

    def weights(self, x: list[Any], t: int) -> Any:
        return self.inner.weights(x, t)

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return self.inner.restart(x, theta)


class Follow(Around):
    """avg' = gamma avg + (1 - gamma) weights', avg_0 = theta_0."""

    def __init__(self, inner: Rule, gamma: Any) -> None:
        super().__init__(inner)
        self.gamma = gamma
        self.period = 0 if isinstance(inner, Tail) else inner.period

    def start(self, theta: Any) -> list[Any]:
        return [*self.inner.start(theta), theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        moved = self.inner.step(x[:-1], gradient, t, lr, momentum)
        return [*moved, self.gamma * x[-1] + (1 - self.gamma) * self.inner.weights(moved, t + 1)]

    def weights(self, x: list[Any], t: int) -> Any:
        return x[-1]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [*self.inner.restart(x[:-1], theta), theta]


class Tail(Around):
    """Mean of the weights after steps first + 1 .. t; the weights themselves before."""

    def __init__(self, inner: Rule, first: int) -> None:
        super().__init__(inner)
        self.first = first
        self.period = 0 if isinstance(inner, Tail) else inner.period
        self.changes = tuple(sorted({*inner.changes, first}))

    def start(self, theta: Any) -> list[Any]:
        return [*self.inner.start(theta), 0 * theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        moved = self.inner.step(x[:-1], gradient, t, lr, momentum)
        return [*moved, x[-1] + self.inner.weights(moved, t + 1) if t + 1 > self.first else x[-1]]

    def weights(self, x: list[Any], t: int) -> Any:
        return x[-1] / (t - self.first) if t > self.first else self.inner.weights(x[:-1], t)

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [*self.inner.restart(x[:-1], theta), x[-1]]


class Slow(Around):
    """Zhang et al. (2019): after every k-th step, slow += alpha (weights - slow) and the fast ones restart there."""

    def __init__(self, inner: Rule, alpha: Any, k: int) -> None:
        super().__init__(inner)
        self.alpha, self.k = alpha, k
        self.period = 0 if isinstance(inner, Tail) else math.lcm(inner.period, k)

    def start(self, theta: Any) -> list[Any]:
        return [*self.inner.start(theta), theta]

    def step(self, x: list[Any], gradient: Gradient, t: int, lr: Any, momentum: Any) -> list[Any]:
        moved, slow = self.inner.step(x[:-1], gradient, t, lr, momentum), x[-1]
        if (t + 1) % self.k:
            return [*moved, slow]
        slow = slow + self.alpha * (self.inner.weights(moved, t + 1) - slow)
        return [*self.inner.restart(moved, slow), slow]

    def weights(self, x: list[Any], t: int) -> Any:
        return x[-1]

    def restart(self, x: list[Any], theta: Any) -> list[Any]:
        return [*self.inner.restart(x[:-1], theta), theta]


def rule(optimizer: Any, h: Any, horizon: int, number: Callable[[Any], Any] = float) -> Rule:
    """The update rule of a catalogue row for a run of ``horizon`` steps, its settings turned into ``number``."""
    o = optimizer
    met = (
        h ** (1 - number(o.power)) if hasattr(o, "power") else h
    )  # a second preconditioner is a power of what the first left
    inner = rule(o.inner, met, horizon, number) if hasattr(o, "inner") else Descent(0)
    match type(o).__name__:
        case "SGD":
            return Descent(number(o.lr))
        case "HeavyBall":
            return Momentum(number(o.lr), number(o.momentum))
        case "Nesterov":
            return Accelerated(number(o.lr), number(o.momentum))
        case "ScheduleFree":
            return Unscheduled(number(o.lr), number(o.momentum))
        case "Preconditioned":
            return Power(inner, h ** -number(o.power))
        case "EMA":
            return Follow(inner, number(o.decay))
        case "Polyak":
            fraction = isinstance(o.start, float) and o.start < 1
            return Tail(inner, math.floor(o.start * horizon) if fraction else int(o.start))
        case "Lookahead":
            return Slow(inner, number(o.alpha), int(o.period))
    raise TypeError(f"no update rule is written down for {o}")


def impulses(optimizer: Optimizer, h: Any, t: int, settings: Settings = constant) -> tuple[Any, Any]:
    """Row 0 of every number is the response to theta_0 = 1 without noise, row j + 1 that to a unit noise at step j."""
    h = np.asarray(h, dtype=float)
    algorithm = rule(optimizer, h, t)
    unit = np.eye(t + 1)[:, :, None] + 0 * h
    x = algorithm.start(unit[0])
    loud = np.empty((t, 1))
    for j in range(t):
        lr, momentum, loud[j] = settings(j)
        x = algorithm.step(x, lambda theta, j=j: h * theta + unit[j + 1], j, lr, momentum)
    y = algorithm.weights(x, t)
    return y[0] ** 2, (y[1:] ** 2 / loud).sum(0)


def matrices(
    algorithm: Rule, h: Any, t: int, one: Any, settings: Settings = constant
) -> tuple[list[list[Any]], list[Any]]:
    """A and b of step t, from what the rule does to unit vectors and to a unit noise."""
    lr, momentum, _ = settings(t)
    k = len(algorithm.start(one))
    columns = []
    for i in range(k):
        x = [one if j == i else 0 * one for j in range(k)]
        columns.append(algorithm.step(x, lambda theta: h * theta, t, lr, momentum))
    b = algorithm.step([0 * one] * k, lambda theta: h * theta + one, t, lr, momentum)
    return [[columns[j][i] for j in range(k)] for i in range(k)], b


def loop(optimizer: Optimizer, h: Any, times: Sequence[int], settings: Settings = constant) -> tuple[Any, Any]:
    """One step after the other in float64; (times, modes) each."""
    h = np.asarray(h, dtype=float)
    if optimizer.depends_on_horizon and len(times) > 1:  # each time is a run of its own
        runs = [loop(optimizer, h, [t], settings) for t in times]
        return tuple(np.concatenate(part) for part in zip(*runs, strict=True))
    algorithm, one = rule(optimizer, h, int(times[-1])), np.ones_like(h)
    x = np.array([e + 0 * h for e in algorithm.start(one)])
    k = len(x)
    N = np.zeros((k, k, h.size))
    readers = np.eye(k)[:, :, None] + 0 * h
    signal, noise = [], []
    for t in range(int(times[-1]) + 1):
        if t in times:
            r = np.array([algorithm.weights(list(e), t) for e in readers])
            signal.append(np.einsum("ix,ix->x", r, x) ** 2)
            noise.append(np.einsum("ix,ijx,jx->x", r, N, r))
        rows, column = matrices(algorithm, h, t, one, settings)
        A, b = np.array(rows), np.array(column)
        x = np.einsum("ijx,jx->ix", A, x)
        N = np.einsum("ijx,jkx,lkx->ilx", A, N, A) + b[:, None] * b[None] / settings(t)[2]
    return np.array(signal), np.array(noise)


Map = tuple[list[list[Any]], list[list[Any]]]


def _then(first: Map, second: Map) -> Map:
    (A1, Q1), (A2, Q2) = first, second
    k = range(len(A2))
    inner = range(len(A1))
    A = [[sum(A2[i][m] * A1[m][j] for m in inner) for j in range(len(A1[0]))] for i in k]
    W = [[sum(A2[i][m] * Q1[m][j] for m in inner) for j in inner] for i in k]
    Q = [[sum(W[i][m] * A2[j][m] for m in inner) + Q2[i][j] for j in k] for i in k]
    return A, Q


def _power(step: Map, t: int) -> Map:
    if t == 1:
        return step
    half = _power(step, t // 2)
    both = _then(half, half)
    return _then(both, step) if t % 2 else both


def exact(optimizer: Optimizer, h: float, t: int) -> tuple[Any, Any]:
    """After t steps on one mode, in 50-digit arithmetic; settings and h taken as the exact values of their floats."""
    with mpmath.workdps(DIGITS):
        H, one = mpmath.mpf(h), mpmath.mpf(1)
        algorithm = rule(optimizer, H, t, mpmath.mpf)
        k = len(algorithm.start(one))

        def step(at: int) -> Map:
            A, b = matrices(algorithm, H, at, one)
            return A, [[p * q for q in b] for p in b]

        state: Map = ([[e] for e in algorithm.start(one)], [[0 * one] * k for _ in range(k)])
        now, period = 0, algorithm.period
        while now < t:
            end = min([c for c in algorithm.changes if c > now], default=t)
            end = min(end, t)
            if period and now % period == 0 and end - now >= period:
                whole = step(now)
                for j in range(1, period):
                    whole = _then(whole, step(now + j))
                cycles = (end - now) // period
                state, now = _then(state, _power(whole, cycles)), now + cycles * period
            else:
                state, now = _then(state, step(now)), now + 1
        reader = [algorithm.weights([one * (j == i) for j in range(k)], t) for i in range(k)]
        A, N = state
        signal = sum(r * a[0] for r, a in zip(reader, A, strict=True)) ** 2
        noise = sum(reader[i] * N[i][j] * reader[j] for i in range(k) for j in range(k))
        return signal, noise


def losses(spectrum: Spectrum, moments: tuple[Any, Any]) -> tuple[Any, Any]:
    """Signal and noise summed over modes with their masses."""
    signal, noise = moments
    return signal @ spectrum.signal_mass, noise @ spectrum.noise_mass


def relative_error(actual: Any, expected: Any, floor: Any = 0.0) -> float:
    """Largest |actual - expected| / max(|expected|, floor); a NaN counts as infinite."""
    actual, expected = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    size = np.maximum(np.abs(expected), floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(actual == expected, 0.0, np.abs(actual - expected) / size)
    return float(np.max(np.where(np.isnan(error), np.inf, error), initial=0.0))
