"""The mean field of an optimizer that is not linear: mean and covariance of its slots on each mode, without sampling.

On one mode let the slots have the mean x and the covariance N, and let a gradient have noise of variance q. A step is replaced
by the linear step that has the same mean and covariance (statistical linearisation)::

    x <- x + G x + shift,        N <- A N A' + q b b' + own own',        A = I + G

G, b, shift and own depend on moments of this very mode, on sums over all modes (a norm), and on exponential averages
(Adam's v), which follow their own means::

    v <- decay v + (1 - decay) y,        y a moment such as E g^2

For a linear optimizer this is exact. For Adam it neglects how far v is from its mean, which vanishes as beta2 goes to 1.

**Starts.** A weight that starts far from zero has another v than one that starts close to it. Normal starts are therefore a
mixture: each mode is followed from a few fixed sizes of theta_0, the nodes of the Gauss rule of the half-normal law. This rule is
exact for polynomials in abs(theta_0), also for odd ones, which is what a step of constant size asks for.

**Blocks of time.** G and b change slowly, so they are held over a block of L steps, which becomes a power of the held map. A
block lasts a fixed part of the time that has passed. G and b belong to the middle of a block: averages are advanced from the
middle of one block to that of the next, and moments are extrapolated by half a block. The error is of second order in that part,
and for blocks of one step the recursion is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from ..types import Array
from .kernels import loops
from .quadrature import Lanczos
from .schedule import SCHEDULED, Target
from .spectrum import Spectrum
from .trajectory import Entry

if TYPE_CHECKING:
    from ..optimizers.base import Optimizer

SETTLED = 1e-6  # A loss has settled if it changes by less than this part while time doubles,
SETTLED_BY = 2**34  # and it has this many steps to do so.

Start = Literal["gaussian", "fixed"]
"""The law of theta_0: normal with variance s, or of the fixed size sqrt(s)."""


@dataclass(frozen=True)
class Detail:
    """How finely a mean field is followed in time and over starts."""

    part: float
    """A block of equal steps lasts this part of the time that has passed."""
    starts: int
    """Sizes of theta_0 from which each mode is followed, if starts are normal."""
    single: int = 32
    """This many steps at the beginning are taken one by one, while Adam's averages fill."""
    growth: float = 4.0
    """A block is cut if a mode that matters grows by more than this factor in it, because held gains let it overshoot."""
    matters: float = 0.01
    """A mode matters from this part of the loss on."""
    cut: int = 4
    """A block that is cut lasts this many times shorter. Later blocks may each double again."""
    least: float = 1 / 64
    """A block is never cut below this part of its full length, so that a run that never settles comes to its end."""
    varies: float = 1.1
    """Multipliers of a schedule that changes at every step are averaged over a block in which they vary by this factor at most."""

    def coarser(self) -> Detail:
        """Twice the length of blocks."""
        return replace(self, part=2 * self.part)

    def finer(self) -> Detail:
        """Half the length of blocks."""
        return replace(self, part=self.part / 2)


SCAN_DETAIL = Detail(part=1 / 8, starts=4)
"""For the scan of a search, which only tells where to begin; 1% off at the settings of `QUICK_DETAIL`."""
QUICK_DETAIL = Detail(part=1 / 16, starts=6)
"""For searches. On six settings of Adam (batch sizes 4 to 2^14) losses were within 0.3% of single steps."""
FINE_DETAIL = Detail(part=1 / 64, starts=24)
"""For reported numbers; the same settings were within 0.02%, and 1e-2 where the loss swings."""
STEADY_DETAIL = Detail(part=1.0, starts=2)
"""For the steady state, which depends neither on the length of blocks nor on starts."""


class Linearised(NamedTuple):
    """A step ``x <- x + G x + b eps + shift + own xi``: eps is gradient noise, xi is noise of variance 1 of the step's own."""

    G: Sequence[Sequence[Entry]]
    b: Sequence[Entry]
    shift: Sequence[Entry] = ()
    own: Sequence[Entry] = ()


@dataclass(frozen=True, eq=False)
class Seen:
    """What the mean field of an optimizer may use: the moments of its slots, and the gradient that reaches it.

    The gradient on a mode is ``h theta + eps`` with noise of variance q. ``curvature`` is that of the mode, which differs from h
    where gradients are scaled before they reach the optimizer. The last axis of arrays is the mode.
    """

    slots: Callable[[], tuple[Array, Array]]  # mean and covariance of the slots, computed when they are asked for
    h: Array
    q: Array
    curvature: Array
    count: Array

    def of(self, row: Sequence[Entry], noise: Entry = 0.0) -> tuple[Array, Array]:
        """Mean and variance of ``row . x + noise eps``; a row may end before the last slot."""
        x, N = self.slots()
        mean, variance = reported(row, x, N)
        return mean, np.maximum(variance + noise * noise * self.q, 0.0)

    def square(self, row: Sequence[Entry], noise: Entry = 0.0) -> Array:
        """Second moment of ``row . x + noise eps``."""
        mean, variance = self.of(row, noise)
        return mean * mean + variance

    def gradient_square(self, point: Sequence[Entry] = (1.0,)) -> Array:
        """E g^2 of the gradient at the weights ``point . x``."""
        return self.square([self.h * p if np.ndim(p) or p else 0.0 for p in point], 1.0)

    def total(self, moment: Array) -> Array:
        """The sum of a moment over all parameters."""
        return (self.count * moment).sum(-1, keepdims=True)

    def scaled(self, gain: Entry, preconditioned: bool = False) -> Seen:
        """What an optimizer sees whose gradients are multiplied by ``gain``, which may be that of a preconditioner."""
        curvature = self.curvature * gain if preconditioned else self.curvature
        return replace(self, h=self.h * gain, q=self.q * gain * gain, curvature=curvature)


def reported(row: Sequence[Entry], x: Array, N: Array) -> tuple[Array, Array]:
    """Mean and variance of ``row . x``; a row may end before the last slot."""
    mean, variance = np.zeros(1), np.zeros(1)
    used = [i for i, entry in enumerate(row) if np.ndim(entry) or entry]
    if len(used) == 1 and np.ndim(row[used[0]]) == 0 and row[used[0]] == 1:
        return x[used[0]], N[used[0], used[0]]
    with np.errstate(all="ignore"):
        for i in used:
            mean = mean + row[i] * x[i]
            variance = variance + row[i] * row[i] * N[i, i]
            for j in used[: used.index(i)]:
                variance = variance + 2 * row[i] * row[j] * N[i, j]
    return mean, variance


def sign_of(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """The sign of a normal number y as ``gain y + shift + own xi``, with its mean, its variance and its covariance with y.

    ``E sign(y) = erf(mean / sqrt(2 variance))`` and ``E sign(y)(y - mean) = 2 phi(mean / sd) sd`` (Price's theorem).
    """
    from scipy.special import erf

    sd = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(sd > 0, mean / sd, np.sign(mean) * math.inf)
        gain = np.where(sd > 0, math.sqrt(2 / math.pi) * np.exp(-z * z / 2) / sd, 0.0)
    expected = np.where(np.isfinite(z), erf(np.where(np.isfinite(z), z, 0.0) / math.sqrt(2)), np.sign(mean))
    own = np.sqrt(np.maximum(1 - expected**2 - gain**2 * variance, 0.0))
    return gain, expected - gain * mean, own


@cache
def half_normal_rule(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss rule for E f(abs(z)), z standard normal; exact for polynomials of degree below 2 ``nodes``.

    >>> z, w = half_normal_rule(8)
    >>> bool(abs(w @ z - (2 / 3.141592653589793) ** 0.5) < 1e-12), bool(abs(w @ z**2 - 1) < 1e-12)
    (True, True)
    """
    x, w = np.polynomial.legendre.leggauss(600)
    grid = 7.5 * (x + 1)  # The half-normal law has a mass of 1e-50 beyond 15.
    z, mass, _ = Lanczos(grid, w * np.exp(-(grid**2) / 2), nodes).rule(nodes)
    return z, mass / mass.sum()


@cache
def start_rule(nodes: int) -> tuple[Array, Array]:
    """The nodes of `half_normal_rule` that matter, scaled to E z^2 = 1; the outermost ones hold less than 1e-6 of it."""
    z, w = half_normal_rule(nodes)
    kept = w * z**2 > 1e-6
    z, w = z[kept], w[kept] / w[kept].sum()
    return z / math.sqrt(w @ z**2), w


@dataclass(frozen=True, eq=False)
class FieldState:
    """Moments of the slots after some steps, the averages in the middle of the block before, and how that block began."""

    x: Array  # (slots, settings x modes)
    N: Array  # (slots, slots, settings x modes)
    averages: tuple[Array, ...] = ()
    averaged: tuple[Array, ...] = ()  # the moments that they average, at the beginning of that block
    length: int = 0  # steps of the block before
    earlier: tuple[Array, Array] | None = None  # x and N at its beginning
    limit: float = math.inf  # longest block that is allowed next


class Multipliers(Protocol):
    """What a mean field asks of a schedule; multipliers of the learning rate may differ between settings."""

    @property
    def repeats_from(self) -> int: ...
    def same_until(self, t: int, /) -> float: ...
    def at(self, t: int, /) -> tuple[Entry, float, float]: ...
    def multipliers(self, target: Target, steps: int, first: int = 0, /) -> Array: ...


class MeanField:
    """One optimizer with one schedule on the modes of a problem, by its mean field: a `Motion` as `Trajectory` is.

    Hyper-parameters and ``batch_size`` may be arrays that broadcast against the modes; ``shape`` is the shape that they have
    together. ``noise`` gives the variance of the gradient of one example on each mode, from the second moments of the weights, the
    curvatures and the multiplicities; without it the variance is c.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        modes: Spectrum,
        batch_size: float | Array,
        schedule: Multipliers | None = None,
        *,
        start: Start = "gaussian",
        detail: Detail = FINE_DETAIL,
        noise: Callable[[Array, Array, Array], Array] | None = None,
        units: tuple[Array, Array] | None = None,
    ) -> None:
        self.optimizer, self.schedule, self.detail = optimizer, schedule, detail
        z, w = start_rule(detail.starts) if start == "gaussian" else (np.ones(1), np.ones(1))
        self.starts, self.modes = w, modes
        self.h, self.c = np.tile(modes.h, len(z)), np.tile(modes.c, len(z))
        self.count = np.outer(w, modes.count).ravel()
        self.theta = np.outer(z, np.sqrt(modes.s)).ravel()
        self.batch_size, self.noise, self.units = batch_size, noise, units or (modes.s, modes.c)
        arrays = [np.shape(value) for value in (*optimizer.settings, batch_size) if np.ndim(value)]
        self.shape = np.broadcast_shapes(self.h.shape, *arrays)
        self.mass = self.count * self.h / 2

    def start(self) -> FieldState:
        """The state before the first step."""
        x = np.stack([np.broadcast_to(a * self.theta, self.shape).ravel() for a in self.optimizer.initial()])
        return FieldState(x, np.zeros((len(x), *x.shape)))

    def move(self, state: FieldState, t: int, to: int) -> FieldState:
        """The state after ``to`` steps from the state after t."""
        while t < to:
            length = self._length(state, t, to)
            state, length = self._grown(state, t, length)
            t += length
        return state

    def blocks(self, limit: int) -> Iterator[tuple[int, FieldState]]:
        """The number of steps and the state after each block, from the start to ``limit``."""
        state, t = self.start(), 0
        while t < limit:
            with np.errstate(all="ignore"):
                state, length = self._grown(state, t, self._length(state, t, limit))
            t += length
            yield t, state

    def losses(self, state: FieldState, t: int) -> Array:
        """The loss of each setting after t steps."""
        mean, variance = self._reported(state, t)
        with np.errstate(over="ignore", invalid="ignore"):
            return (mean * mean + variance).reshape(self.shape) @ self.mass

    def read(self, state: FieldState, t: int) -> tuple[Array, Array]:
        """Second moments of the reported weights on each mode: of the mean over noise, and of the noise, as `Trajectory.read`."""
        mean, variance = (a.reshape(*self.shape[:-1], len(self.starts), -1) for a in self._reported(state, t))
        square, spread = (np.einsum("k,...kn->...n", self.starts, a) for a in (mean * mean, variance))
        signal, noise = self.units
        size = np.where(np.isfinite(self.batch_size), self.batch_size, 0.0)
        return _ratio(square, signal), _ratio(size * spread, noise)

    def end(self, t: int) -> tuple[Array, Array]:
        """What `read` gives after t steps from the start."""
        return self.read(self.move(self.start(), 0, t), t)

    def floor(self) -> Array:
        """The loss of each setting in the steady state; NaN if it does not settle."""
        last, since = np.full(self.shape[:-1], math.nan), 1
        for t, state in self.blocks(SETTLED_BY):
            if t < 2 * since and t < SETTLED_BY:
                continue
            loss, since = self.losses(state, t), t
            if np.all(np.abs(loss - last) <= SETTLED * np.abs(loss)):
                return loss
            last = loss
        return np.where(np.isfinite(last), math.nan, last)

    def decays(self) -> list[Entry]:
        """The decays of the exponential averages that the optimizer keeps, such as Adam's beta2."""
        return [decay for decay, _ in self.optimizer.averaged(self._seen(self.start(), 0.0, 1.0))]

    def _reported(self, state: FieldState, t: int) -> tuple[Array, Array]:
        """Mean and variance of the weights that are reported after t steps."""
        row = self.optimizer.readout(t)
        return reported([np.broadcast_to(r, self.shape).ravel() if np.ndim(r) else r for r in row], state.x, state.N)

    def _flat(self, entry: Entry) -> Array:
        """An entry with one number for each mode of each setting, in the order of the state."""
        full = np.asarray(entry)
        return (full if full.shape == self.shape else np.broadcast_to(full, self.shape)).ravel()

    def _length(self, state: FieldState, t: int, to: int) -> int:
        """The number of steps of the next block."""
        length = min(int(self.detail.part * t) if t >= self.detail.single else 1, to - t, state.limit)
        length = min(length, self.optimizer.same_until(t) - t)
        if self.schedule and (same := self.schedule.same_until(t) - t) < length:
            lasting = same > 1 or self.schedule.same_until(t + 1) > t + 2  # a piece, and not a change at every step
            length = same if lasting else self._smooth(t, int(length))
        return max(1, int(length))

    def _smooth(self, t: int, length: int) -> int:
        """The largest block, by halving, in which the multipliers of the schedule hardly vary."""
        assert self.schedule is not None
        while length > 1:
            found = [self.schedule.multipliers(name, length, t) for name in SCHEDULED]
            if all(np.all(m.max(-1) <= self.detail.varies * m.min(-1)) for m in found):
                break
            length //= 2
        return length

    def _grown(self, state: FieldState, t: int, length: int) -> tuple[FieldState, int]:
        """The state after a block, and its length, which is cut if a mode that matters grows too fast in it."""
        while True:
            moved = self._block(state, t, length)
            if length <= max(1, self.detail.least * self.detail.part * t) or not self._overshoots(state, moved):
                return moved, length
            length = max(1, length // self.detail.cut)
            state = replace(state, limit=float(length))

    def _overshoots(self, state: FieldState, moved: FieldState) -> bool:
        """Whether the loss has risen because a mode that matters has grown too fast."""
        after = self._second(moved)
        now = after @ self.mass
        if not np.all(np.isfinite(now)):
            return True
        if math.isinf(self.detail.growth) or np.all(now <= (before := self._second(state)) @ self.mass):
            return False
        large = after * self.mass > self.detail.matters * now[..., None]
        return bool(np.any(large & (after > self.detail.growth * before)))

    def _second(self, state: FieldState) -> Array:
        """Second moments of the weights on each mode of each setting."""
        return (state.x[0] ** 2 + state.N[0, 0]).reshape(self.shape)

    def _held(self, t: int, length: int) -> tuple[Optimizer, float]:
        """The optimizer of a block under the schedule, and the multiplier of its batch size."""
        if self.schedule is None:
            return self.optimizer, 1.0
        if self.schedule.same_until(t) >= t + length:
            lr, momentum, batch = self.schedule.at(t)
        else:
            lr, momentum, rest = (self.schedule.multipliers(name, length, t) for name in SCHEDULED)
            lr, momentum, batch = (
                lr.mean(-1, keepdims=lr.ndim > 1),
                float(momentum.mean()),
                float(1 / (1 / rest).mean()),
            )
        return self.optimizer.scaled(lr, momentum), batch

    def _block(self, state: FieldState, t: int, length: int) -> FieldState:
        """The state after a block of ``length`` steps from step t on."""
        optimizer, batch = self._held(t, length)
        middle = (length - 1) / 2
        ahead = middle / state.length if state.length else 0.0  # the middle of this block, in lengths of the one before
        averaged = optimizer.averaged(self._seen(state, 0.0, batch))
        averages = self._advanced(state, averaged, length)
        at, seen = t + middle, self._seen(state, ahead, batch)
        step = optimizer.linearised(seen, averages, int(at) if at.is_integer() else at)
        hold = loops().hold
        if hold is None or len(step.b) != 2 or step.shift or step.own:
            x, N = self._power(step, state, seen.q, length)
        else:
            *G, b0, b1, q = map(self._flat, (*step.G[0], *step.G[1], *step.b, seen.q))
            x, N = hold(G, (b0, b1), q, state.x, state.N, length)
        moments = tuple(y for _, y in averaged)
        return FieldState(x, N, averages, moments, length, (state.x, state.N), 2 * state.limit)

    def _seen(self, state: FieldState, ahead: float, batch: float) -> Seen:
        """The moments of a state, extrapolated by a part of the block before."""

        def slots() -> tuple[Array, Array]:
            x, N = _extrapolated(state, ahead) if ahead else (state.x, state.N)
            return x.reshape(len(x), *self.shape), N.reshape(len(x), len(x), *self.shape)

        c = self.c
        if self.noise is not None:
            x, N = slots()
            c = self.noise(x[0] ** 2 + N[0, 0], self.h, self.count)
        return Seen(slots, self.h, c / (self.batch_size * batch), self.h, self.count)

    def _advanced(self, state: FieldState, averaged: Sequence[tuple[Entry, Array]], length: int) -> tuple[Array, ...]:
        """The averages in the middle of a block, from those in the middle of the block before.

        What enters an average on the way is on average ``age`` steps old in the middle of the block. A moment y is known at the
        beginning of the block, and is extrapolated to that time by its change in the block before.
        """
        steps, found = (state.length + length) / 2 if state.length else (length + 1) / 2, []
        for i, (decay, y) in enumerate(averaged):
            before, kept = state.averages[i] if state.averages else np.zeros(1), np.power(decay, steps)
            if length > 1 and state.averaged:
                with np.errstate(divide="ignore", invalid="ignore"):
                    age = decay / (1 - decay) - np.where(kept > 0, steps * kept / (1 - kept), 0.0)
                    later = np.maximum(0.0, (length - 1) / 2 - age) / state.length
                    y = y * np.clip(y / state.averaged[i], 0.25, 4.0) ** later
            found.append(before + (1 - kept) * (y - before))
        return tuple(found)

    def _power(self, step: Linearised, state: FieldState, q: Array, length: int) -> tuple[Array, Array]:
        """Mean and covariance after ``length`` equal steps; a shift is the column of one more slot that is always 1."""
        k, moving = len(step.b), any(np.ndim(e) or e for e in step.shift)
        size = k + moving
        G, Q = np.zeros((2, size, size, *self.shape)) if moving else np.empty((2, size, size, *self.shape))
        for i in range(k):
            jolt = q * step.b[i]
            for j in range(k):
                G[i, j] = step.G[i][j]
                if j < i:
                    Q[i, j] = Q[j, i]
                else:
                    Q[i, j] = jolt * step.b[j] + (step.own[i] * step.own[j] if step.own else 0.0)
            if moving:
                G[i, k] = step.shift[i]
        G, Q = G.reshape(size, size, -1), Q.reshape(size, size, -1)
        x, N = state.x, state.N
        if moving:
            x, N = np.append(x, np.ones((1, x.shape[1])), axis=0), np.pad(N, ((0, 1), (0, 1), (0, 0)))
        drift = np.einsum("iix->ix", G).copy()
        G[range(size), range(size)] += 1.0  # From here on it is A = I + G.
        x, N = loops().move(G, drift, Q, np.ascontiguousarray(x[:, None]), np.ascontiguousarray(N), length)
        return x[:k, 0], N[:k, :k]


def _extrapolated(state: FieldState, part: float) -> tuple[Array, Array]:
    """The moments later by ``part`` of the block before, by that block's change; nothing more than doubles or halves."""
    assert state.earlier is not None
    x, N = state.earlier
    with np.errstate(all="ignore"):
        slope = np.nan_to_num(1 + (1 - x / state.x) * part, nan=1.0)
        f = np.sqrt(np.nan_to_num(np.einsum("iix->ix", state.N) / np.einsum("iix->ix", N), nan=1.0) ** part)
    f = np.clip(np.nan_to_num(f, nan=1.0), 0.7, 1.4)
    return state.x * np.clip(slope, 0.5, 2.0), state.N * f[:, None] * f[None]


def _ratio(a: Array, unit: Array) -> Array:
    """a / unit, and 0 where the unit is 0."""
    return np.divide(a, unit, out=np.zeros(np.broadcast_shapes(a.shape, unit.shape)), where=unit > 0)
