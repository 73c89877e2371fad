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
from ..types import Array, Wrong, is_number
from .base import MAX_STEPS, Pair, Problem, check_spectrum, total
from .coupled import Coupled, Steady
from .quadratic import Quadratic
from .renewal import Renewal
from .stability import LIMIT_TOLERANCE, bisect, largest_stable

WALKED = 1024  # a curve takes single steps up to times below this, and uses `Renewal` for later times
SLOW = 10**8  # a run is slow if its modes times its steps exceed this
SHORT_CYCLE = 8  # steps of the longest cycle whose steady state is solved for on all modes; longer cycles use nodes
MAX_CYCLE = 256  # steps of the longest cycle whose steady state is solved for at all; the cost grows as its square
FEW_MODES = 1024  # with more modes than this, a stability limit is first searched for on nodes
BLOCK_STEPS = 2**14  # steps of the longest block of a walk
MARGIN = 1e-3  # a target is out of reach if the loss of label noise alone exceeds it by this fraction


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LeastSquares(Problem):
    """Linear regression on fresh Gaussian examples: features of covariance H, labels with noise.

    Each step draws B examples, ``f ~ N(0, H)`` and ``label = f' theta* + sigma xi``, and takes the gradient of their
    mean squared error. With theta measured from theta*, the noise of the gradient on a mode of curvature h has variance::

        (h^2 m + h tau + h sigma^2) / B,      m = E theta^2 on the mode,   tau = sum n h m = 2 loss

    at the point where the gradient is taken. So noise falls with the loss, and stability limits the learning rate at small
    batches; `Quadratic` has neither effect. The loss is the excess risk ``1/2 sum n h E[theta^2]``, without the
    ``sigma^2 / 2`` that no weights can remove.

    Parameters
    ----------
    spectrum : curvatures h, starts s and multiplicities. Gradient noise follows from the features, so c is used only if
        ``label_noise`` is omitted: then it must be ``c = sigma^2 h``.
    label_noise : sigma^2, the variance of the noise of the labels.
    features : quadrature nodes of the features, with weights of their own for signal and for noise (`on`).

    >>> from nqm import SGD
    >>> problem = LeastSquares(Spectrum.power_law(10_000), label_noise=1.0)
    >>> round(problem.stability_limit(SGD(), batch_size=4), 4), round(problem.additive.stability_limit(SGD()), 4)
    (0.7292, 2.0)
    >>> problem.run(SGD(0.5), batch_size=4, steps=[0, 1, 10]).loss.round(4).tolist()
    [4.8938, 4.8137, 4.4579]
    """

    for_users: ClassVar[frozenset[str] | None] = frozenset({"additive"}) | (Problem.for_users or frozenset())
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
                sentence = "the noise c of this spectrum is not a multiple of h, so it does not give the label noise"
                raise Wrong(f"{sentence}; set label_noise", argument="label_noise")
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
        """The quadratic whose noise is everywhere that of the minimum, c = sigma^2 h."""
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
        return self.noise_on(moments, self.spectrum.h, self.spectrum.count)

    def noise_on(self, moments: Array, h: Array, count: Array) -> Array:
        return h * (h * moments + ((h * moments) @ count)[..., None] + self.label_noise)

    def follows(self, optimizer: Optimizer) -> bool:
        return optimizer.linear or (optimizer.has_mean_field and not optimizer.assumes_normal)

    def slow(self, steps: int) -> bool:
        return steps * len(self.features) > SLOW

    def curve(self, optimizer: Optimizer, batch_size: float) -> Callable[[int], Array]:
        """A function of t: the loss of each setting after t steps, at a cost of O(log t) (`Renewal`).

        It is accurate to 1e-12 where the loss is smooth, and to 1e-4 during oscillations that hardly decay.
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
            # The yield is outside of errstate, which would otherwise stay in force for the caller.
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
        """A step after which the target cannot be reached any more, at most ``limit``.

        At constant settings the loss from label noise alone never decreases. Once it exceeds the target, the target is lost.
        """
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
        """The steady-state loss; for a cycle of more than 8 steps on the fine nodes, and NaN for one of more than 256."""
        steady = self._steady(optimizer, batch_size, schedule)
        return float(steady.floor[0]) if steady else math.nan

    def _steady(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None = None) -> Steady | None:
        """The steady state, or None if the cycle is too long to be solved for."""
        held = optimizer.endless
        if held.cycle > MAX_CYCLE:
            return None
        return (self if held.cycle <= SHORT_CYCLE else self.nodes.fine).motion(held, batch_size, schedule).steady()

    def _limit(self, optimizer: Optimizer, batch_size: float) -> float:
        """The stability limit; for SGD it is the root of ``sum n x / (B (2 - x (1 + 1/B))) = 1``, x = lr h."""
        one = fill(optimizer, {"lr": 1.0}).endless
        if one.cycle > MAX_CYCLE:
            sentence = f"stability_limit needs a cycle of at most {MAX_CYCLE} steps; that of {optimizer} is longer"
            raise Wrong(sentence, argument="optimizer")
        where = self.nodes.fine if len(self.features) > FEW_MODES else self

        def stable(lr: float) -> bool:
            steady = where._steady(fill(optimizer, {"lr": lr}), batch_size)
            return steady is not None and bool(steady.stable[0])

        edge = float(np.min(one.edge(self.spectrum.h)))
        low, high = largest_stable(stable, edge, careful=0.2 * edge if one.cycle > 1 else math.inf)
        if where is not self:
            where, low, high = self, low * (1 - 1e-6), high * (1 + 1e-6)
            while low > 0 and not stable(low):
                low *= 0.999
            low, high = bisect(stable, low, high, LIMIT_TOLERANCE)
        return low

    def _diverges(self, optimizer: Optimizer, batch_size: float, schedule: Schedule | None) -> str:
        steady = self._steady(optimizer, batch_size, schedule)
        if steady is None or steady.radius[0] > 1 or not (steady.own[0] >= 1 or steady.gain[0] >= 1):
            return self.additive._diverges(optimizer, batch_size, schedule)
        limit = self.stability_limit(optimizer, batch_size) if schedule is None else math.nan
        below = f" below {limit:.6g}" if math.isfinite(limit) else ""
        gain = f"with a gain of {steady.gain[0]:.4g}, above 1" if steady.own[0] < 1 else "even on a single mode"
        return (
            f"diverges: at batch size {batch_size:g} the noise of a batch feeds back {gain}; "
            f"lower the learning rate{below} or raise the batch size"
        )

    def _source(
        self, optimizer: Optimizer, batch_sizes: Array, laws: Sequence[Law], start: str, rotation: Array | None
    ) -> Minibatch:
        if np.any(np.isfinite(batch_sizes) & (batch_sizes != np.rint(batch_sizes))):
            sentence = f"to sample examples, batch_size must be a whole number at every step, got {batch_sizes[0]:g}"
            raise Wrong(sentence, argument="batch_size")
        noise, features = (*laws, GAUSSIAN)[:2]
        return Minibatch(self.spectrum, self.label_noise, features, noise, start, rotation)
