"""An optimizer with its schedule on given curvatures: its steps, their powers, read-outs and the steady state.

Identical steps become one power, and repeating steps become one power of their cycle. So a run at constant settings costs
O(log t), whatever the optimizer. Steps that all differ are taken one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import Array, Wrong
from .basis import Basis
from .kernels import loops, scan
from .kernels.given import Stretch
from .moments import MomentMap, Powers
from .schedule import Schedule

if TYPE_CHECKING:
    from ..optimizers.base import Optimizer

MAX_STEPS = 10**9  # steps of the longest run
MAX_SINGLE_STEPS = 10**7  # most steps of a run whose steps all differ and are taken one by one
MAX_GROWTH = 1e4  # a state that grows by more than this factor and then shrinks consists of rounding errors
SCAN = 4096  # most differing steps that one call of `Loops.scan` takes
STABLE = 1 + 1e-12  # largest spectral radius of a stable mode; on the slowest modes 1 - lr h rounds to 1.0
MAX_KEPT_POWERS = 256  # most steps whose powers are stored at a time

Entry = float | Array
"""An entry of the system of a step: a number, or an array with one number for each setting and mode."""


@dataclass(frozen=True)
class Affine:
    """Steps ``first`` .. ``last`` that differ only by a scalar, their pace: ``G = G0 + pace G1`` and ``b = b0 + pace b1``."""

    G0: Array
    G1: Array
    b0: Array
    b1: Array
    pace: Callable[[int, int], Any]  # (t, to) -> the pace of each of the steps t .. to
    first: int
    last: float


class Trajectory:
    """One optimizer with one schedule on curvatures h.

    Hyper-parameters may be arrays that broadcast against h. ``shape`` is the shape they have together, and the mode axis of
    maps is this shape, flattened. Slots are balanced on each mode by the first step at the unscheduled learning rate.
    """

    def __init__(self, optimizer: Optimizer, h: Array, schedule: Schedule | None = None) -> None:
        self.optimizer, self.h, self.schedule = optimizer, h, schedule
        G, b = optimizer.system(h, 0)
        entries = [*(e for row in G for e in row), *b]
        # A hyper-parameter may appear for the first time in a later step of a cycle.
        later = optimizer.settings if optimizer.cycle != 1 else []
        arrays = (e for e in (*entries, *later) if not isinstance(e, float | int))
        self.shape = np.broadcast_shapes(h.shape, *{np.shape(e) for e in arrays})
        self._change, self._jolt = self._arrays(G, b)
        self.modes = self._jolt.shape[1]
        self.period = optimizer.cycle
        self.repeats_from = max(optimizer.repeats_from, schedule.repeats_from if schedule else 0)
        self._powers: dict[int, Powers] = {}  # by step
        self._cycles: dict[int, Powers] = {}  # by phase

    @cached_property
    def basis(self) -> Basis:
        """The balanced slots in which maps and states are written."""
        return Basis(self._change)

    def start(self) -> MomentMap:
        """The state before the first step, in units of theta_0: a map with one column."""
        return MomentMap.matrix(self.basis.column(self._slots(self.optimizer.initial()))[:, None])

    def _slots(self, slots: Sequence[Entry]) -> Array:
        """Numbers of the slots as an array: (slots, 1) if they serve all settings and modes, or else (slots, modes)."""
        if all(isinstance(e, float | int) or np.ndim(e) == 0 for e in slots):
            return np.array(slots, dtype=float)[:, None]
        return np.stack([np.broadcast_to(e, self.shape).ravel() for e in slots])

    def doublings(self, levels: int) -> tuple[Array, Array]:
        """What `end` gives after 1, 2, 4, 8, ... steps, as (level, ...), if all steps and their read-outs are identical."""
        climb = loops().climb
        if climb is None:
            start, squares = self.start(), self.powers(0)
            signal, noise = zip(*(self.read(squares[level] @ start, 1) for level in range(levels)), strict=True)
            return np.stack(signal), np.stack(noise)
        x, r = self._slots(self.optimizer.initial()), self._slots(self.optimizer.readout(1))
        signal, noise = climb(self._change, self._jolt, x, r, levels)
        return signal.reshape(levels, *self.shape), noise.reshape(levels, *self.shape)

    def end(self, t: int) -> tuple[Array, Array]:
        """What `read` gives after t steps from the start."""
        end = loops().end
        if end is None or self.schedule is not None or self.period != 1 or self.same_until(0) < t:
            return self.read(self.move(self.start(), 0, t), t)
        x, r = self._slots(self.optimizer.initial()), self._slots(self.optimizer.readout(t))
        signal, noise = end(self._change, self._jolt, x, r, t)
        return signal.reshape(self.shape), noise.reshape(self.shape)

    def watch(self, first: int, level: int, count: int, ws: Array, wn: Array) -> tuple[Array, Array]:
        """What `end` gives after first, first + 2^level, ... steps, summed over modes with weights ws and wn: (count, settings)."""
        watch, last = loops().watch, first + (count - 1) * 2**level
        alike = self.schedule is None and self.period == 1 and self.optimizer.steady and self.same_until(0) >= last
        if watch is not None and alike and len(self._jolt) == 2:
            x, r = self._slots(self.optimizer.initial()), self._slots(self.optimizer.readout(1))
            return watch(self._change, self._jolt, x, r, first, level, count, ws, wn)
        state, now, found = self.start(), 0, list[tuple[Array, Array]]()
        for t in range(first, last + 1, 2**level):
            state, now = self.move(state, now, t), t
            signal, noise = self.read(state, t)
            found.append((np.atleast_1d(signal @ ws), np.atleast_1d(noise @ wn)))
        return np.stack([signal for signal, _ in found]), np.stack([noise for _, noise in found])

    def row(self, t: int) -> Array:
        """The read-out after t steps, (slots, modes)."""
        return self.basis.row(self._slots(self.optimizer.readout(t)))

    def held(self, t: int) -> Optimizer:
        """The optimizer with the learning rate and the momentum that the schedule gives step t."""
        return self.optimizer.scaled(*self.schedule.at(t)[:2]) if self.schedule else self.optimizer

    def gradient_point(self, t: int) -> Array:
        """The weights of the slots in the point at which step t takes its gradient, (slots, modes)."""
        return self.basis.row(self._slots(self.held(t).gradient_point(t)))

    def read(self, state: MomentMap, t: int) -> tuple[Array, Array]:
        """Second moments of the reported weights: of the signal in units of s, of the noise in units of c / B."""
        signal, noise = state.seen(self.row(t))
        return signal.reshape(self.shape), noise.reshape(self.shape)

    def step(self, t: int) -> MomentMap:
        """The map of step t."""
        G, b, batch = self.system(t)
        return MomentMap.step(G, b).louder(1 / batch)

    def system(self, t: int) -> tuple[Array, Array, float]:
        """G and b of step t, and the multiplier of its batch size."""
        return (*self._stack(self.held(t), t), self.schedule.at(t)[2] if self.schedule else 1.0)

    def same_until(self, t: int) -> float:
        """The first step after t that differs from step t."""
        ends = self.optimizer.same_until(t)
        return min(ends, self.schedule.same_until(t)) if self.schedule else ends

    def move(self, state: MomentMap, t: int, to: int) -> MomentMap:
        """The state after ``to`` steps from the state after t."""
        if self.period == 0 and to > MAX_SINGLE_STEPS:
            raise Wrong(
                f"the steps of {self.optimizer} all differ, so a run of it has at most {MAX_SINGLE_STEPS:,} steps, "
                f"got {to:,}; ask for fewer steps",
                argument="steps",
            )
        while t < to:
            if self.period > 1 and t >= self.repeats_from and to - t >= 2 * self.period:
                cycles = (to - t) // self.period
                state = self.cycle((t - self.repeats_from) % self.period).move(state, cycles)
                t += cycles * self.period
                continue
            end = int(min(self.same_until(t), to))
            if end - t == 1 and to - t > 1 and (affine := self.affine(t)):
                end = min(to, t + min(SCAN, max(t, 16)))
                state, _, _ = self.scan(affine, state, t, end)
                lost = np.abs(state.A).max(axis=(0, 1)) > MAX_GROWTH
                state.A[..., lost] = state.Q[..., lost] = np.nan
            else:
                state = self.powers(t).move(state, end - t)
            t = end
        return state

    def powers(self, t: int) -> Powers:
        """The powers of the map of step t, stored for all steps that are identical to it."""
        key = t
        if self.period and t >= self.repeats_from:
            key = self.repeats_from + (t - self.repeats_from) % self.period
        if key not in self._powers:
            if len(self._powers) >= MAX_KEPT_POWERS:
                self._powers.clear()
            self._powers[key] = Powers(self.step(t))
        return self._powers[key]

    def cycle(self, phase: int = 0) -> Powers:
        """The powers of one whole cycle that begins ``phase`` steps into it."""
        if phase not in self._cycles:
            t, end, parts = self.repeats_from + phase, self.repeats_from + phase + self.period, list[MomentMap]()
            while t < end:
                stop = int(min(self.same_until(t), end))
                parts.append(self.powers(t)[0] ** (stop - t))
                t = stop
            self._cycles[phase] = Powers(reduce(lambda earlier, later: later @ earlier, parts))
        return self._cycles[phase]

    def affine(self, t: int) -> Affine | None:
        """The steps from t on as ``G = G0 + pace G1``, or None if they are not of this form."""
        line = self._affine
        return line if line and line.first <= t < line.last else None

    @cached_property
    def _affine(self) -> Affine | None:
        """The line through three steps of different pace, if they lie on one.

        The pace is the optimizer's own, or else the schedule's multiplier of the learning rate.
        """
        optimizer, schedule, late = self.optimizer, self.schedule, self.repeats_from
        own = optimizer.pace(np.array([0, 1, 3]))
        if own is not None:
            points = [(float(p), self._stack(self.held(late), u)) for p, u in zip(own, (0, 1, 3), strict=True)]
            return _line(points, lambda t, to: optimizer.pace(np.arange(t, to)), late)
        if schedule is None or self.period != 1 or np.any(schedule.momentum != 1):
            return None
        points = [(m, self._stack(optimizer.scaled(m), late)) for m in (1.0, 0.5, 2.0)]
        pace = lambda t, to: schedule.multipliers("lr", to - t, t)  # noqa: E731
        return _line(points, pace, optimizer.repeats_from, schedule.repeats_from)

    def stretches(self, t: int, to: int) -> Iterator[tuple[int, int, Stretch]]:
        """The steps t .. ``to`` in stretches that lie on a line, for loops that take them one by one.

        Each comes with its first step and its end. ``loud`` is the noise variance over that at the usual batch size.
        """
        while t < to:
            end = int(min(self.same_until(t), to))
            affine = self.affine(t) if end - t == 1 and to - t > 1 else None
            if affine:
                end = min(to, t + SCAN)
                G0, G1, b0, b1, pace = affine.G0, affine.G1, affine.b0, affine.b1, affine.pace(t, end)
            else:
                G0, b0, _ = self.system(t)
                G1, b1, pace = np.zeros_like(G0), np.zeros_like(b0), np.zeros(end - t)
            yield t, end, Stretch(G0, G1, b0, b1, pace, self._loud(t, end))
            t = end

    def _loud(self, t: int, to: int) -> Array:
        """The noise variance of each of the steps t .. ``to``, over that at the usual batch size."""
        return 1 / self.schedule.multipliers("batch_size", to - t, t) if self.schedule else np.ones(to - t)

    def scan(
        self, affine: Affine, state: MomentMap, t: int, to: int, ws: Array | None = None, wn: Array | None = None
    ) -> tuple[MomentMap, Array, Array]:
        """Take the steps t .. ``to``; return the last state, and after each step signal and noise summed with ws and wn."""
        X, N, modes = state.A.copy(), state.Q.copy(), self.modes
        loud = self._loud(t, to)
        ws = np.zeros((1, modes)) if ws is None else np.ascontiguousarray(ws).reshape(-1, modes)
        wn = np.zeros(modes) if wn is None else np.ascontiguousarray(wn).ravel()
        line = (affine.G0, affine.G1, affine.b0, affine.b1, affine.pace(t, to))
        signal, noise = scan(*line, loud, X, N, self.row(to), ws, wn)
        signal[np.maximum.accumulate(signal) > MAX_GROWTH**2 * max(float(ws.sum()), 1e-300)] = np.nan
        return MomentMap.matrix(X, N), signal, noise

    def stationary(self) -> MomentMap:
        """The map whose fixed point is the steady state: one cycle at the last settings of the schedule."""
        if self.period == 0:
            return self.step(MAX_STEPS)
        return self.cycle()[0] if self.period > 1 else self.powers(self.repeats_from)[0]

    def stable(self) -> Array:
        """Whether all modes are stable, for each setting."""
        return np.asarray((self.stationary().radius().reshape(self.shape) <= STABLE).all(axis=-1))

    def floor(self) -> Array:
        """Steady-state second moment of the reported weights in units of c / B.

        It is infinite on unstable modes, and NaN if nothing moves because the schedule ends at learning rate 0.
        """
        limit = self.stationary()
        stable = (limit.radius() <= STABLE).reshape(self.shape)
        if self.optimizer.averages:
            return np.where(stable, 0.0, np.inf)
        r = self.row(self.repeats_from)
        with np.errstate(all="ignore"):
            try:
                noise = np.einsum("ix,ijx,jx->x", r, limit.fixed_point(), r).reshape(self.shape)
            except np.linalg.LinAlgError:
                noise = np.full(self.shape, np.nan)
        return np.where(stable, np.where(noise >= 0, noise, np.nan), np.inf)

    def _stack(self, optimizer: Optimizer, t: int) -> tuple[Array, Array]:
        """G and b of step t as arrays in the balanced slots."""
        return self.basis.system(*self._arrays(*optimizer.system(self.h, t)))

    def _arrays(self, G: Sequence[Sequence[Entry]], b: Sequence[Entry]) -> tuple[Array, Array]:
        k = len(b)
        full, jolt = np.empty((k, k, *self.shape)), np.empty((k, *self.shape))
        for i in range(k):
            jolt[i] = b[i]
            for j in range(k):
                full[i, j] = G[i][j]
        return full.reshape(k, k, -1), jolt.reshape(k, -1)


def fade(optimizer: Optimizer, times: int | Array, reference: int) -> Entry:
    """How much smaller squared read-outs are at ``times`` than at ``reference``, because an average divides by its length."""
    if optimizer.steady:
        return 1.0
    size = lambda t: sum(np.max(np.abs(e)) for e in optimizer.readout(int(t)))  # noqa: E731
    return np.array([size(t) for t in np.atleast_1d(times)]) ** 2 / size(reference) ** 2


def _line(
    points: list[tuple[float, tuple[Array, Array]]], pace: Callable[[int, int], Any], first: int, last: float = math.inf
) -> Affine | None:
    """The line through the first two points (pace, (G, b)), or None if the third is not on it."""
    (p0, (Ga, ba)), (p1, (Gb, bb)), (p2, (Gc, bc)) = points
    G1, b1 = (Gb - Ga) / (p1 - p0), (bb - ba) / (p1 - p0)
    line = Affine(Ga - p0 * G1, G1, ba - p0 * b1, b1, pace, first, last)
    # Only rounding is allowed for. A system that is not affine in the pace misses the line by far more.
    off = np.abs(line.G0 + p2 * G1 - Gc).max() + np.abs(line.b0 + p2 * b1 - bc).max()
    size = np.abs(Gc).max() + np.abs(bc).max()
    return line if off <= 1e-12 * size else None
