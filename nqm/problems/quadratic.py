"""The noisy quadratic model: gradient noise does not depend on the weights, so signal and noise separate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..engine.run import Outcome
from ..engine.schedule import Schedule
from ..engine.spectrum import HEAD, Spectrum
from ..engine.trajectory import Trajectory
from ..optimizers.base import Optimizer, fill
from ..sampling.laws import Law
from ..sampling.sources import Additive
from ..types import Array, Wrong
from .base import Pair, Problem, check_spectrum, total
from .stability import largest_stable

SCANS = (10, 20, 31)  # numbers of powers of two that `doublings` computes in one call, each call from the start again


@dataclass(frozen=True, eq=False, repr=False)
class Quadratic(Problem):
    """The noisy quadratic model: loss ``1/2 sum n h theta^2``, gradient noise of variance c / B on each mode.

    >>> from nqm import SGD
    >>> problem = Quadratic(Spectrum.power_law(10_000))
    >>> problem.run(SGD(1.0), batch_size=1024, steps=1000).loss[-1].round(6)
    np.float64(0.613652)
    """

    spectrum: Spectrum
    separable: ClassVar[bool] = True
    coarseness: ClassVar[tuple[float, int]] = (1e-7, HEAD // 4)

    def __post_init__(self) -> None:
        check_spectrum(self.spectrum, "Quadratic")

    @property
    def modes(self) -> Spectrum:
        return self.spectrum

    @property
    def units(self) -> tuple[Array, Array]:
        return self.spectrum.s, self.spectrum.c

    def on(self, modes: Spectrum) -> Quadratic:
        return Quadratic(modes)

    def motion(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Trajectory:
        return Trajectory(optimizer, self.spectrum.h, schedule)

    def gradient_noise(self, moments: Array) -> Array:
        return self.spectrum.c

    def curve(self, optimizer: Optimizer, batch_size: float) -> Callable[[int], Array]:
        if optimizer.cycle != 1 or optimizer.depends_on_horizon:
            return lambda t: total(self._losses(optimizer, t, batch_size), batch_size)
        dynamics = Trajectory(optimizer, self.spectrum.h)
        return lambda t: total(self.summed(dynamics.end(t)), batch_size)

    def doublings(self, optimizer: Optimizer, batch_size: float) -> Iterator[Pair]:
        alike = optimizer.cycle == 1 and optimizer.steady and not optimizer.depends_on_horizon
        if not alike or math.isfinite(optimizer.same_until(0)):
            powers = (2**level for level in range(63))
            yield from map(self.summed, self._read(optimizer, powers, batch_size, None))
            return
        dynamics, seen = Trajectory(optimizer, self.spectrum.h), 0
        for levels in SCANS:  # Starting again is cheaper than storing the maps of so many modes.
            signal, noise = self.summed(dynamics.doublings(levels))
            yield from zip(signal[seen:], noise[seen:], strict=True)
            seen = levels

    def _floor(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> float:
        moments = self.motion(optimizer.endless, batch_size, schedule).floor()
        return math.inf if np.any(np.isinf(moments)) else float(moments @ self.masses[1]) / batch_size

    def _limit(self, optimizer: Optimizer, batch_size: float) -> float:
        one = fill(optimizer, {"lr": 1.0}).endless
        ends = np.array([self.spectrum.h.min(), self.spectrum.h.max()])
        # Identical steps lose stability at the largest curvature first. A cycle can resonate with any mode.
        modes = np.append(self.nodes.coarse.spectrum.h, ends) if one.cycle > 1 else ends

        def stable(lr: float, h: Array = modes) -> bool:
            return bool(Trajectory(fill(optimizer, {"lr": lr}).endless, h).stable())

        low, _ = largest_stable(stable, float(np.min(one.edge(ends))), careful=0.0 if one.cycle > 1 else math.inf)
        while one.cycle > 1 and not stable(low * (1 - 1e-10), self.spectrum.h):
            low *= 0.999
        return low

    def _diverges(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> str:
        radius = self.motion(optimizer.endless, batch_size, schedule).stationary().radius()
        worst, limit = int(np.argmax(radius)), self.stability_limit(optimizer)
        below = f" below {limit:.6g}" if math.isfinite(limit) and schedule is None else ""
        return Outcome.diverged.value.format(radius=radius[worst], h=self.spectrum.h[worst], limit=below)

    def _source(
        self, optimizer: Optimizer, batch_sizes: Array, laws: Sequence[Law], start: str, rotation: Array | None
    ) -> Additive:
        if len(laws) > 1:
            raise Wrong(
                "features: only LeastSquares draws examples; omit the law of their features", argument="features"
            )
        return Additive(self.spectrum, optimizer, laws[0], start, rotation)
