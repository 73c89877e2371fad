"""An optimizer with its schedule on given curvatures, ready to move: steps, powers, read-outs, steady state.

Steps that are alike become one power and steps that repeat one power of their cycle, so a constant run costs O(log t)
whatever the optimizer is made of. Steps that all differ are walked one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import Array, Wrong
from .basis import Basis
from .kernels import loops
from .moments import MomentMap, Powers
from .schedule import Schedule

if TYPE_CHECKING:
    from ..optimizers.base import Optimizer

MAX_STEPS = 10**9  # steps of the longest run
MAX_SINGLE_STEPS = 10**7  # most steps that are followed one by one, because they all differ
MAX_GROWTH = 1e4  # growth of a state after which its second moments, once it falls again, are rounding alone
SCAN = 4096  # steps that differ and are walked in one call
STABLE = 1 + 1e-12  # largest spectral radius of a stable mode: the slowest have 1 - lr h == 1.0 in float64

Entry = float | Array
"""An entry of a step's system: a number, or one for each setting and mode."""


@dataclass(frozen=True)
class Affine:
    """Steps ``first`` .. ``last`` that differ only in a scalar: ``G = G0 + pace G1`` and ``b = b0 + pace b1``."""

    G0: Array
    G1: Array
    b0: Array
    b1: Array
    pace: Callable[[int, int], Any]  # of each of the steps t .. to
    first: int
    last: float


class Trajectory:
    """One optimizer, one schedule, curvatures h.

    Settings may be arrays that broadcast against h; ``shape`` is the shape they give together, and maps hold it
    flattened as their mode axis. Slots are balanced on each mode, from the first step at the unscheduled rate.
    """

    def __init__(self, optimizer: Optimizer, h: Array, schedule: Schedule | None = None) -> None:
        self.optimizer, self.h, self.schedule = optimizer, h, schedule
        G, b = optimizer.system(h, 0)
        entries = [*(e for row in G for e in row), *b]
        # A later step of a cycle may be the first to show a setting.
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
        return Basis(self._change)

    @cached_property
    def _first(self) -> tuple[Array, Array]:
        """G and b of the first step in the balanced slots."""
        return self.basis.system(self._change, self._jolt)

    def start(self) -> MomentMap:
        """theta_0 spread over the slots: a map with one column."""
        return MomentMap.matrix(self.basis.column(self._slots(self.optimizer.initial()))[:, None])

    def _slots(self, slots: Sequence[Entry]) -> Array:
        """One number for each slot as (slots, 1), or one for each setting and mode too, as (slots, modes)."""
        if all(isinstance(e, float | int) or np.ndim(e) == 0 for e in slots):
            return np.array(slots, dtype=float)[:, None]
        return np.stack([np.broadcast_to(e, self.shape).ravel() for e in slots])

    def doublings(self, levels: int) -> tuple[Array, Array]:
        """What `end` gives after 1, 2, 4, 8, ... steps, (level, ...), where all steps are alike and so is the read-out."""
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

    def row(self, t: int) -> Array:
        """The read-out after t steps, (slots, modes)."""
        return self.basis.row(self._slots(self.optimizer.readout(t)))

    def gradient_point(self, t: int) -> Array:
        """The weights of the slots in the point of step t's gradient, (slots, modes)."""
        held = self.optimizer.scaled(*self.schedule.at(t)[:2]) if self.schedule else self.optimizer
        return self.basis.row(self._slots(held.gradient_point(t)))

    def read(self, state: MomentMap, t: int) -> tuple[Array, Array]:
        """Second moments of the reported weights: of the signal per unit s, of the noise per unit c / B."""
        signal, noise = state.seen(self.row(t))
        return signal.reshape(self.shape), noise.reshape(self.shape)

    def step(self, t: int) -> MomentMap:
        """The map of step t."""
        G, b, batch = self.system(t)
        return MomentMap.step(G, b) if batch == 1 else MomentMap.step(G, b).louder(1 / batch)

    def system(self, t: int) -> tuple[Array, Array, float]:
        """G and b of step t, and the multiplier of its batch size."""
        if self.schedule is None:
            return (*(self._stack(self.optimizer, t) if t else self._first), 1.0)
        lr, momentum, batch = self.schedule.at(t)
        return (*self._stack(self.optimizer.scaled(lr, momentum), t), batch)

    def same_until(self, t: int) -> float:
        ends = self.optimizer.same_until(t)
        return min(ends, self.schedule.same_until(t)) if self.schedule else ends

    def move(self, state: MomentMap, t: int, to: int) -> MomentMap:
        """The state after ``to`` steps from the state after t."""
        if self.period == 0 and to > MAX_SINGLE_STEPS:
            raise Wrong(
                f"the steps of {self.optimizer} all differ and are followed one by one, "
                f"{MAX_SINGLE_STEPS:,} at most, not {to:,}",
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
                lost = np.abs(state.A).max(axis=(0, 1)) > MAX_GROWTH  # what comes back from there is rounding
                state.A[..., lost] = state.Q[..., lost] = np.nan
            else:
                state = self.powers(t).move(state, end - t)
            t = end
        return state

    def powers(self, t: int) -> Powers:
        """The powers of step t's map, kept for the steps it stands for."""
        key = t
        if self.period and t >= self.repeats_from:
            key = self.repeats_from + (t - self.repeats_from) % self.period
        if key not in self._powers:
            if len(self._powers) > 256:
                self._powers.clear()
            self._powers[key] = Powers(self.step(t))
        return self._powers[key]

    def cycle(self, phase: int = 0) -> Powers:
        """The powers of one whole cycle that begins ``phase`` steps into it."""
        if phase not in self._cycles:
            t, end = self.repeats_from + phase, self.repeats_from + phase + self.period
            whole = None
            while t < end:
                stop = int(min(self.same_until(t), end))
                part = self.powers(t)[0] ** (stop - t)
                whole = part if whole is None else part @ whole
                t = stop
            assert whole is not None
            self._cycles[phase] = Powers(whole)
        return self._cycles[phase]

    def affine(self, t: int) -> Affine | None:
        """The steps from t on as ``G0 + pace G1``, where they are that."""
        line = self._affine
        return line if line and line.first <= t < line.last else None

    @cached_property
    def _affine(self) -> Affine | None:
        """The line through three steps of different pace, if they lie on one: the optimizer's own pace, or the schedule's."""
        optimizer, schedule, late = self.optimizer, self.schedule, self.repeats_from
        own = optimizer.pace(np.array([0, 1, 3]))
        if own is not None:
            held = optimizer.scaled(*schedule.at(late)[:2]) if schedule else optimizer
            points = [(float(p), self._stack(held, u)) for p, u in zip(own, (0, 1, 3), strict=True)]
            return _line(points, lambda t, to: optimizer.pace(np.arange(t, to)), late)
        if schedule is None or self.period != 1 or np.any(schedule.momentum != 1):
            return None
        points = [(m, self._stack(optimizer.scaled(m), late)) for m in (1.0, 0.5, 2.0)]
        pace = lambda t, to: schedule.multipliers("lr", to - t, t)  # noqa: E731
        return _line(points, pace, optimizer.repeats_from, schedule.repeats_from)

    def scan(
        self, affine: Affine, state: MomentMap, t: int, to: int, ws: Array | None = None, wn: Array | None = None
    ) -> tuple[MomentMap, Array, Array]:
        """Walk from t to ``to`` and sum the moments with weights ws and wn after each step."""
        X, N, modes = state.A.copy(), state.Q.copy(), self.modes
        loud = 1 / self.schedule.multipliers("batch_size", to - t, t) if self.schedule else np.ones(to - t)
        ws = np.zeros((1, modes)) if ws is None else np.ascontiguousarray(ws).reshape(-1, modes)
        wn = np.zeros(modes) if wn is None else np.ascontiguousarray(wn).ravel()
        signal, noise = loops().scan(
            affine.G0, affine.G1, affine.b0, affine.b1, affine.pace(t, to), loud, X, N, self.row(to), ws, wn
        )
        signal[np.maximum.accumulate(signal) > MAX_GROWTH**2 * max(float(ws.sum()), 1e-300)] = np.nan
        return MomentMap.matrix(X, N), signal, noise

    def stationary(self) -> MomentMap:
        """The map whose fixed point is the steady state: one cycle at the schedule's last settings."""
        if self.period == 0:
            return self.step(MAX_STEPS)
        return self.cycle()[0] if self.period > 1 else self.powers(self.repeats_from)[0]

    def stable(self) -> Array:
        """Whether every mode is stable, for each setting."""
        return np.asarray((self.stationary().radius().reshape(self.shape) <= STABLE).all(axis=-1))

    def floor(self) -> Array:
        """Steady-state second moment of the reported weights per unit c / B.

        Infinite on unstable modes, NaN where there is none because nothing moves (a schedule that ends at rate 0).
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
    """Square of the read-out's factor at ``times`` over that at ``reference`` (an average divides by its length)."""
    if optimizer.steady:
        return 1.0
    size = lambda t: sum(np.max(np.abs(e)) for e in optimizer.readout(int(t)))  # noqa: E731
    return np.array([size(t) for t in np.atleast_1d(times)]) ** 2 / size(reference) ** 2


def _line(
    points: list[tuple[float, tuple[Array, Array]]], pace: Callable[[int, int], Any], first: int, last: float = math.inf
) -> Affine | None:
    """The line through two points, if the third lies on it."""
    (p0, (Ga, ba)), (p1, (Gb, bb)), (p2, (Gc, bc)) = points
    G1, b1 = (Gb - Ga) / (p1 - p0), (bb - ba) / (p1 - p0)
    line = Affine(Ga - p0 * G1, G1, ba - p0 * b1, b1, pace, first, last)
    # Rounding of the entries at the three points; anything curved misses by far more.
    off = np.abs(line.G0 + p2 * G1 - Gc).max() + np.abs(line.b0 + p2 * b1 - bc).max()
    size = np.abs(Gc).max() + np.abs(bc).max()
    return line if off <= 1e-12 * size else None
