"""Least squares with Gaussian features: exact, with the sampling noise of real minibatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ..engine.schedule import Schedule
from ..engine.spectrum import HEAD, Spectrum
from ..optimizers.base import Optimizer, fill
from ..sampling.laws import GAUSSIAN, Law
from ..sampling.sources import Minibatch
from ..types import Array, Wrong
from .base import MAX_STEPS, Pair, Problem, bisect, check_spectrum, is_number, total
from .coupled import Coupled, Steady
from .quadratic import Quadratic
from .renewal import Renewal

WALKED = 1024  # a curve walks to steps below this one, and jumps to later ones
SLOW = 10**8  # modes times steps of a run that is slow
SHORT_CYCLE = 8  # steps of the longest cycle whose steady state is solved for on every mode; longer ones are on nodes
MAX_CYCLE = 256  # steps of the longest cycle whose steady state is solved for at all: the cost goes as its square
FEW_MODES = 1024  # with more modes stability is first looked at on nodes
BLOCK_STEPS = 2**14  # steps of the longest block of a walk
MARGIN = 1e-3  # relative excess of the loss of label noise alone over a target that is out of reach


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LeastSquares(Problem):
    """Linear regression on fresh Gaussian examples: features of covariance H, labels with noise.

    Each step draws B examples, ``f ~ N(0, H)`` and ``label = f' theta* + sigma xi``, and takes the gradient of their
    mean squared error. With theta counted from theta* its noise on a mode of curvature h has variance::

        (h^2 m + h tau + h sigma^2) / B,      m = E theta^2 on the mode,   tau = sum n h m = 2 loss

    at the point where the gradient is taken: noise that falls with the loss, and a learning rate that stability caps at
    small batches, both of which `Quadratic` leaves out. The loss is the excess risk ``1/2 sum n h E[theta^2]``; the
    ``sigma^2 / 2`` that no weights can remove is not in it.

    Parameters
    ----------
    spectrum : curvatures h, starts s and multiplicities. Gradient noise follows from the features, so c is not used,
        except that ``c = sigma^2 h`` gives the label noise where none is named.
    label_noise : sigma^2, the variance of the labels' noise.
    features : quadrature nodes of the features, whose weights for signal and for noise are their own (`on`).

    >>> from nqm import SGD
    >>> problem = LeastSquares(Spectrum.power_law(10_000), label_noise=1.0)
    >>> round(problem.stability_limit(SGD(), batch_size=4), 4), round(problem.additive.stability_limit(SGD()), 4)
    (0.7292, 2.0)
    >>> problem.run(SGD(0.5), batch_size=4, steps=[0, 1, 10]).loss.round(4).tolist()
    [4.8938, 4.8137, 4.4579]
    """

    spectrum: Spectrum
    label_noise: float
    features: Spectrum
    separable: ClassVar[bool] = False
    coarseness: ClassVar[tuple[float, int]] = (1e-4, HEAD)

    def __init__(
        self, spectrum: Spectrum, label_noise: float | None = None, *, features: Spectrum | None = None
    ) -> None:
        check_spectrum(spectrum, "LeastSquares")
        noise = label_noise
        if noise is None:
            ratio = spectrum.c / spectrum.h
            if np.ptp(ratio) > 1e-6 * ratio.max():
                raise Wrong(
                    "the noise c of this spectrum is not a multiple of h, so it names no label noise; set label_noise",
                    argument="label_noise",
                )
            noise = float(ratio.max())
        if not is_number(noise) or not 0 <= noise < math.inf:
            raise Wrong(f"label_noise must be a variance of at least 0, got {noise!r}", argument="label_noise")
        h, s, n = spectrum.h, spectrum.s, spectrum.count
        object.__setattr__(self, "label_noise", float(noise))
        object.__setattr__(self, "spectrum", Spectrum(h, float(noise) * h, s, n, note=spectrum.note))
        object.__setattr__(self, "features", features or Spectrum(h, h, s, n))

    def _brief(self) -> str:
        return f"{super()._brief()}, label noise {self.label_noise:g}"

    @cached_property
    def additive(self) -> Quadratic:
        """The quadratic that has the noise of the minimum, c = sigma^2 h, everywhere."""
        return Quadratic(self.spectrum)

    @property
    def modes(self) -> Spectrum:
        return self.features

    @property
    def units(self) -> tuple[Array, Array]:
        return self.features.s, np.ones(1)

    def on(self, modes: Spectrum) -> LeastSquares:
        return LeastSquares(modes, self.label_noise, features=modes)

    def motion(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Coupled:
        return Coupled(optimizer, self.features, self.label_noise, batch_size, schedule)

    def gradient_noise(self, moments: Array) -> Array:
        h = self.spectrum.h
        return h * (h * moments + self.spectrum.count @ (h * moments) + self.label_noise)

    def slow(self, steps: int) -> bool:
        return steps * len(self.features) > SLOW

    def curve(self, optimizer: Optimizer, batch_size: float) -> Callable[[int], Array]:
        """The loss of each setting after t steps, at a cost of log t (`Renewal`).

        Accurate to 1e-12 where the loss is smooth, and to 1e-4 in the midst of swings that hardly decay.
        """

        def loss(t: int) -> Array:
            coupled = self.motion(optimizer.at_horizon(t), batch_size)
            with np.errstate(all="ignore"):
                if t == 0:
                    return np.full(coupled.settings, self.spectrum.initial_loss)
                if t >= WALKED and Renewal.fits(coupled):
                    return Renewal(coupled).losses(t)
                _, signal, noise = coupled.walk(coupled.start(), 0, t)
                return total((signal[:, -1], noise[:, -1]), batch_size)

        return loss

    def doublings(self, optimizer: Optimizer, batch_size: float) -> Iterator[Pair]:
        coupled, t = self.motion(optimizer.at_horizon(1), batch_size), 1
        renewal = None if optimizer.depends_on_horizon or not Renewal.fits(coupled) else Renewal(coupled)
        curve, M = self.curve(optimizer, batch_size), renewal and renewal.start()
        while True:
            with np.errstate(all="ignore"):
                if renewal is None or M is None:
                    loss = curve(t)
                else:
                    M = renewal.move(M, t // 2, t)
                    loss = renewal.loss(M, t)
            # Outside: a generator that rests inside errstate leaves it on for everybody.
            yield loss, np.zeros_like(loss)
            t *= 2

    def walk(
        self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None, limit: int = MAX_STEPS
    ) -> Iterator[Array]:
        coupled = self.motion(optimizer.endless, batch_size, schedule)
        state, t = coupled.start(), 0
        while t < limit:
            to = min(limit, t + min(BLOCK_STEPS, max(t, 128)))
            with np.errstate(all="ignore"):
                state, signal, noise = coupled.walk(state, t, to)
            yield total((signal[0], noise[0]), batch_size)
            t = to

    def hopeless_after(
        self, optimizer: Optimizer, batch_size: float, target: float, schedule: Schedule | None, limit: int
    ) -> int:
        """What label noise alone adds at constant settings only grows: the target is lost once that exceeds it."""
        settled = schedule.repeats_from if schedule else 0
        if schedule:
            lr, momentum, batch = schedule.at(settled)
            if lr == 0:
                return limit
            optimizer, batch_size = optimizer.scaled(lr, momentum), batch_size * batch
        coupled = self.nodes.fine.motion(optimizer.endless, batch_size)
        if not Renewal.fits(coupled):
            return limit
        renewal = Renewal(coupled)
        M, t = np.zeros_like(renewal.start()), 0
        with np.errstate(all="ignore"):
            while t < limit:
                M, t = renewal.move(M, t, t + max(64, t)), t + max(64, t)
                if not renewal.loss(M, t)[0] <= (1 + MARGIN) * target:
                    break
        return min(limit, settled + t)

    def _floor(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> float:
        """Cycles of more than 8 steps are looked at on the fine nodes, and those of more than 256 not at all: NaN."""
        steady = self._steady(optimizer, batch_size, schedule)
        return float(steady.floor[0]) if steady else math.nan

    def _steady(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Steady | None:
        """The long run, if its cycle is not too long to be solved for."""
        held = optimizer.endless
        if held.cycle > MAX_CYCLE:
            return None
        return (self if held.cycle <= SHORT_CYCLE else self.nodes.fine).motion(held, batch_size, schedule).steady()

    def _limit(self, optimizer: Optimizer, batch_size: float) -> float:
        """For SGD it is the root of ``sum n x / (B (2 - x (1 + 1/B))) = 1``, x = lr h."""
        one = fill(optimizer, {"lr": 1.0}).endless
        if one.cycle > MAX_CYCLE:
            raise Wrong(
                f"stability_limit takes cycles of up to {MAX_CYCLE} steps, and {optimizer} has a longer one",
                argument="optimizer",
            )
        where = self.nodes.fine if len(self.features) > FEW_MODES else self

        def stable(lr: float) -> bool:
            steady = where._steady(fill(optimizer, {"lr": lr}), batch_size)
            return steady is not None and bool(steady.stable[0])

        edge = float(np.min(one.edge(self.spectrum.h)))
        low, high = 0.0, 1e-3 * edge
        while not stable(high) and high > 1e-300:
            high /= 4
        # A cycle can resonate near its edge, and be stable again above.
        careful = 0.2 * edge if one.cycle > 1 else math.inf
        while stable(high) and high < 1e300:
            low, high = high, high * (1.02 if high > careful else 2.0)
        low, high = bisect(stable, low, high, 1e-12)
        if where is not self:
            where, low, high = self, low * (1 - 1e-6), high * (1 + 1e-6)
            while low > 0 and not stable(low):
                low *= 0.999
            low, high = bisect(stable, low, high, 1e-12)
        return low

    def _diverges(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> str:
        steady = self._steady(optimizer, batch_size, schedule)
        if steady is None or steady.radius[0] > 1 or not (steady.own[0] >= 1 or steady.gain[0] >= 1):
            return self.additive._diverges(optimizer, batch_size, schedule)
        limit = self.stability_limit(optimizer, batch_size) if schedule is None else math.nan
        below = f" below {limit:.6g}" if math.isfinite(limit) else ""
        gain = f"with a gain of {steady.gain[0]:.4g}, above 1" if steady.own[0] < 1 else "on a single mode already"
        return (
            f"diverges: at batch size {batch_size:g} the noise of a batch feeds back {gain}; "
            f"lower the learning rate{below} or raise the batch size"
        )

    def _source(
        self, optimizer: Optimizer, batch_sizes: Array, laws: Sequence[Law], start: str, rotation: Array | None
    ) -> Minibatch:
        if np.any(np.isfinite(batch_sizes) & (batch_sizes != np.rint(batch_sizes))):
            raise Wrong(
                f"batch_size must be a whole number of examples at every step to be sampled, got {batch_sizes[0]:g}",
                argument="batch_size",
            )
        noise, features = (*laws, GAUSSIAN)[:2]
        return Minibatch(self.spectrum, self.label_noise, features, noise, start, rotation)
