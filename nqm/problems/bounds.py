"""Lower bounds on the steps of any method, or of any method of a kind; and the knee in closed form."""

from __future__ import annotations

import math

import numpy as np

from ..engine.spectrum import Spectrum
from .stability import bisect


def paper_bound(spectrum: Spectrum, target: float, batch_size: float) -> float:
    """The paper's bound from noise alone: ``sum_i n_i c_i / h_i / (2 target B)`` steps, which is d / (2 target B) if c = h.

    It is not a lower bound for a method that uses the start as prior information: see `bayes_bound`.

    >>> paper_bound(Spectrum.power_law(10_000), 0.01, 4)
    125000.0
    """
    return float((spectrum.count * spectrum.c / spectrum.h).sum() / (2 * target * batch_size))


def bayes_bound(spectrum: Spectrum, target: float, batch_size: float) -> float:
    """The steps T that any method needs to reach the target from T B gradients and the prior theta_0 ~ N(0, s).

    Each gradient is an observation of theta* with precision h^2 / c, so the expected loss is at least
    ``1/2 sum n h / (1/s + T B h^2 / c)``. The bound is the T B at which this equals the target, divided by B.

    >>> paper = Spectrum.power_law(10_000)
    >>> round(bayes_bound(paper, 0.01, 4)), round(10_000 / math.expm1(0.02) / 4)     # d / (e^(2 target) - 1) / B for a large d
    (123754, 123754)
    """
    if spectrum.initial_loss <= target:
        return 0.0
    h, s, c, n = spectrum.h, spectrum.s, spectrum.c, spectrum.count
    live = (s > 0) & (c > 0)
    h, s, c, n = h[live], s[live], c[live], n[live]

    def above(examples: float) -> bool:
        return float((n * h * s / (1 + examples * s * h**2 / c)).sum() / 2) > target

    high = 1.0
    while above(high):
        high *= 2
    return bisect(above, 0.0, high, 1e-12)[1] / batch_size


def conjugate_gradient_steps(spectrum: Spectrum, target: float, power: float = 0.0, limit: int = 10_000) -> int | None:
    """Steps of conjugate gradients without noise, preconditioned by H^-power: the fewest of any method in the gradients' span.

    Full reorthogonalisation gives the count of exact arithmetic. Without it the first two of these take 57 and 27 steps.

    >>> [conjugate_gradient_steps(Spectrum.power_law(10_000), 0.01, p) for p in (0.0, 0.25, 0.5, 0.75)]
    [44, 25, 13, 5]
    """
    k = spectrum.h ** (1 - power)  # curvature after preconditioning
    mass = np.sqrt(2 * spectrum.signal_mass)  # root mean square of sqrt(n h) theta_0
    # Conjugate gradients on diag(k) for an unknown z with z' K z = 2 loss, so z_0 = mass / sqrt(k).
    z = mass / np.sqrt(k)
    r = -k * z
    p, rr = r.copy(), r @ r
    basis: list[np.ndarray] = []
    distinct = len(np.unique(k[mass > 0]))  # After this many steps the loss is zero in exact arithmetic.
    for t in range(limit + 1):
        if t == distinct or rr == 0 or z @ (k * z) / 2 <= target:
            return t
        alpha = rr / (p @ (k * p))
        z = z + alpha * p
        basis.append(r / math.sqrt(rr))
        r = r - alpha * k * p
        for _ in range(2):  # A second pass removes the rounding errors of the first.
            for q in basis:
                r = r - (q @ r) * q
        new = r @ r
        p, rr = r + new / rr * p, new
    return None


def knee(spectrum: Spectrum, target: float, power: float = 0.0) -> float:
    """Closed-form critical batch size ``tr(P^-1 C) / (2 max(h / P) target)`` for P = H^power.

    >>> [round(knee(Spectrum.power_law(10_000), 0.01, p)) for p in (0.0, 0.25, 0.5, 0.75)]
    [489, 1828, 9927, 66629]
    """
    h, c, n = spectrum.h, spectrum.c, spectrum.count
    return float((n * c * h**-power).sum() / (2 * (h ** (1 - power)).max() * target))
