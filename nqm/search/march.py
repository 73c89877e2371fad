"""The first hit of a target on a separable problem, by blocks of time.

Bisection finds *a* crossing of the target, which need not be the first. Here time is covered by blocks of 2^i steps, and each
block is either excluded by a bound or split. In a stretch of equal steps, the state at its beginning consists of vectors that
move as ``x -> A x`` (the signal, and factors of the noise so far), and the noise Q_j that the stretch adds only grows. Let r be
the read-out and u = (A - I) x the change of the first step. Then ``r A^j x = r x + sum_{l<j} r A^l u``, so that after 1 to 2^i
steps r x has moved by at most ``W_i |u|``, where::

    W_0 = |r|,        W_{i+1} = W_i + W_i |A^(2^i)|        (elementwise sizes)

The loss in the block is at least ``sum w (|r x| - W_i |u|)_+^2 + r Q r``. It is at most ``sum w (|r x| + W_i |u|)^2`` plus the
noise at the end of the block. Both bounds are rigorous for any linear optimizer, and cost no more than the powers of A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..engine.kernels import scan
from ..engine.moments import MomentMap, Powers
from ..engine.schedule import Schedule
from ..engine.trajectory import SCAN, Trajectory, fade
from ..optimizers.base import Optimizer
from ..problems.base import Problem
from ..types import Array
from .settings import HIT_SETTINGS

Until = Literal["first", "settled"]


@dataclass(frozen=True, eq=False)
class Chase:
    """A run and its target. The question is when the expected loss reaches the target, within ``limit`` steps."""

    problem: Problem
    optimizer: Optimizer
    batch_size: float
    target: float
    schedule: Schedule | None
    limit: int
    until: Until

    def loss(self, t: int) -> float:
        """The loss after t steps, infinite where it is not finite."""
        loss = self.problem.loss(self.optimizer, t, self.batch_size, self.schedule)
        return loss if math.isfinite(loss) else math.inf

    @property
    def floor(self) -> float:
        """The steady-state loss."""
        return self.problem.floor(self.optimizer, self.batch_size, self.schedule)


class Watch:
    """The losses seen so far, and the answer that they give."""

    def __init__(self, chase: Chase, limit: int) -> None:
        self.target, self.first, self.limit = chase.target, chase.until == "first", limit
        self.over = False  # whether no later step can be an answer
        self.last_above = 0 if chase.problem.initial_loss > chase.target else -1

    def see(self, losses: Array, time: int, stride: int = 1) -> int | None:
        """Record the losses at ``time``, ``time + stride``, ...; returns the first hit among them, if that is the question."""
        above = ~(losses <= self.target)
        if self.first and not above.all():
            return time + stride * int(np.argmin(above))
        if above.any():
            self.last_above = max(self.last_above, time + stride * int(np.flatnonzero(above)[-1]))
        if not np.isfinite(losses[-1]):
            self.stop(time + stride * (len(losses) - 1))
        return None

    def stop(self, time: int) -> None:
        """Decide nothing after this time."""
        self.over, self.limit = True, min(self.limit, time)

    def answer(self) -> int | None:
        """The step from which on the loss stays at the target, if that is the question and all times have been seen."""
        return None if self.first or self.over or self.last_above >= self.limit else self.last_above + 1


def march_to(chase: Chase) -> tuple[int | None, int]:
    """The step that answers the chase, or None, and the last step that was decided."""
    march = _March(chase)
    return march.go(), march.watch.limit


class Leg:
    """A stretch of equal steps (or strides of several): the state, its loss, and bounds of the loss in a block of 2^level."""

    def __init__(
        self, path: Trajectory, state: MomentMap, t: int, ws: Array, wn: Array, powers: Powers, stride: int
    ) -> None:
        self.powers, self.stride, self.wn = powers, stride, wn
        self.optimizer, self.first = path.optimizer, t + stride
        self.row = path.row(self.first)
        self.readout = MomentMap.matrix(self.row[None])
        X, self.weights = _columns(state, ws, wn)
        self.state = MomentMap.matrix(X)
        self._reach = [np.abs(self.row)]  # W by level
        self._change = powers[0].A.copy()  # A - I
        np.einsum("iix->ix", self._change)[:] = powers[0].drift

    def losses(self, state: MomentMap) -> tuple[Array, float]:
        """The reported weights of each column of a state, and the loss due to the noise of this stretch."""
        seen = self.readout @ state
        return seen.A[0], float(seen.Q[0, 0] @ self.wn)

    def fade(self, times: Array) -> Array:
        """The weight of the read-out in the loss at these times, relative to that at the first step."""
        return np.ones(1) * fade(self.optimizer, times, self.first)

    def after(self, level: int) -> MomentMap:
        """The state after a block."""
        return self.powers[level] @ self.state

    def least(self, level: int) -> float:
        """A lower bound of the loss in a block, for the read-out of the stretch's first step."""
        y, noise = self.losses(self.state)
        # The difference of y and a swing of nearly the same size is all rounding.
        size, swing, off = np.abs(y), self._swing(level), HIT_SETTINGS.rounding
        return float((self.weights * np.maximum((1 - off) * size - (1 + off) * swing, 0) ** 2).sum()) + noise

    def most(self, level: int, after: MomentMap) -> float:
        """An upper bound of the loss in a block, for the same read-out; ``after`` is the state after the block."""
        y, _ = self.losses(self.state)
        return float((self.weights * (np.abs(y) + self._swing(level)) ** 2).sum()) + self.losses(after)[1]

    def _swing(self, level: int) -> Array:
        """How far the reported weights of each column can move within a block: W |u|."""
        W = self._reach
        while len(W) <= level:
            W.append(W[-1] + np.einsum("ix,ijx->jx", W[-1], np.abs(self.powers[len(W) - 1].A)))
        u = np.abs(np.einsum("ijx,jcx->icx", self._change, self.state.A))
        return np.einsum("ix,icx->cx", W[level], u)

    def joined(self) -> MomentMap:
        """The state with the factors of earlier noise and the noise of this stretch in one covariance."""
        signal, factor = MomentMap.matrix(self.state.A[:, :1]), self.state.A[:, 1:]
        return MomentMap(signal.A, signal.drift, self.state.Q + np.einsum("icx,jcx->ijx", factor, factor))


def _columns(state: MomentMap, ws: Array, wn: Array) -> tuple[Array, Array]:
    """A state as columns that all move as x -> A x (the signal, and a factor of the noise covariance), and their weights."""
    if not state.Q.any():
        return state.A, ws[None]
    largest = np.abs(state.Q).max(axis=(0, 1))
    overflown = ~np.isfinite(largest)
    unit = np.where(overflown | (largest == 0), 1.0, largest)  # Eigenvalues of entries near 1e300 do not converge.
    size, axes = np.linalg.eigh(np.where(overflown, 0.0, state.Q / unit).transpose(2, 0, 1))
    factor = (axes * np.sqrt(np.maximum(size, 0) * unit[:, None])[:, None, :]).transpose(1, 2, 0)
    factor[..., overflown] = np.nan
    return np.concatenate([state.A, factor], axis=1), np.stack([ws, *[wn] * len(state.Q)])


class _March:
    """Goes through time in blocks. Times up to ``t`` are decided, and ``state`` is the state after step t."""

    def __init__(self, chase: Chase) -> None:
        self.path = Trajectory(chase.optimizer.endless, chase.problem.spectrum.h, chase.schedule)
        self.ws, self.wn = chase.problem.spectrum.signal_mass, chase.problem.spectrum.noise_mass / chase.batch_size
        walks = self.path.period == 0
        self.watch = Watch(chase, min(chase.limit, HIT_SETTINGS.most_walked) if walks else chase.limit)
        self.t, self.state, self.walked = 0, self.path.start(), 0

    def go(self) -> int | None:
        watch, path, begun, period = self.watch, self.path, self.path.repeats_from, self.path.period
        if watch.first and watch.last_above < 0:
            return 0
        while self.t < watch.limit and not watch.over:
            if 1 < period <= HIT_SETTINGS.most_phases and self.t >= begun:
                hit = self._interleaved(lambda t: path.cycle((t - begun) % period), period, watch.limit)
                self.t = watch.limit
            elif (end := int(min(path.same_until(self.t), watch.limit))) - self.t == 1:
                hit = self._differing(min(watch.limit, self.t + SCAN))
            elif self._flips():
                hit = self._alternating(end)
            else:
                hit = self._alike(path.powers(self.t), end, 1)
            if hit is not None:
                return hit
        return watch.answer()

    def _differing(self, to: int) -> int | None:
        """Walk through steps that all differ: up to ``to`` if they differ in one scalar only, or else one step."""
        t, affine = self.t, self.path.affine(self.t)
        if not affine:
            self.state, self.t = self.path.move(self.state, t, t + 1), t + 1
            return self._see_now()
        self.state, signal, noise = self.path.scan(affine, self.state, t, to, self.ws, self.wn)
        self.t = to
        return self.watch.see((signal + noise) * fade(self.path.optimizer, np.arange(t + 1, to + 1), to), t + 1)

    def _see_now(self) -> int | None:
        """Record the loss of the present state."""
        signal, noise = self.path.read(self.state, self.t)
        return self.watch.see(np.array([signal @ self.ws + noise @ self.wn]), self.t)

    def _flips(self) -> bool:
        """Whether slow modes change sign at every step, so that only every other step looks smooth."""
        return bool(np.any(np.einsum("iix->x", self.path.powers(self.t)[0].A) < HIT_SETTINGS.flips))

    def _alternating(self, end: int) -> int | None:
        """Search odd and even steps separately, each as a stretch of double steps."""
        powers, t = self.path.powers(self.t), self.t
        twice = Powers(powers[1])
        last = t + (end - t) // 2 * 2
        state = powers.move(self.state, last - t)
        hit = self._interleaved(lambda _: twice, 2, last)
        self.t, self.state = last, state
        if hit is None and last < end and not self.watch.over:
            hit = self._alike(powers, end, 1)
        return hit

    def _interleaved(self, powers_from: Callable[[int], Powers], period: int, end: int) -> int | None:
        """Search the times of each phase in turn, by powers of a whole period; returns the first hit of all phases, or None."""
        t, state, watch = self.t, self.state, self.watch
        best: int | None = None
        until, over = end, []
        for phase in range(period):
            self.t, self.state = t + phase, self.path.move(state, t, t + phase)
            if self.t > until:
                break
            if phase and self._see_now() is not None:
                best = self.t  # Any hits of earlier phases lie in later periods.
                break
            watch.over = False
            hit = self._alike(powers_from(self.t), until, period)
            over.append(watch.over)
            if hit is not None:
                best, until = hit, hit - 1
        # A first hit is out of reach if it is out of reach in every phase. The loss never settles if it does not in one phase.
        hopeless = len(over) == period and all(over) if watch.first else any(over)
        watch.over = end >= watch.limit and hopeless
        return best

    def _alike(self, powers: Powers, end: int, stride: int) -> int | None:
        """Search the times t + stride, t + 2 stride, ... up to ``end``, which powers of one map reach."""
        watch, stretch, level = self.watch, Leg(self.path, self.state, self.t, self.ws, self.wn, powers, stride), 0
        while (left := (end - self.t) // stride) > 0 and not watch.over:
            level = self._skip(stretch, min(level + 1, left.bit_length() - 1))
            if level == HIT_SETTINGS.leaf_level:
                hit = self._leaf(stretch, min(2**level, left))
                if hit is not None:
                    return hit
            if end >= watch.limit and not self.path.optimizer.averages:
                # From here on the noise only grows, and the signal is not negative.
                watch.over |= stretch.losses(stretch.state)[1] > watch.target
        self.state = stretch.joined()
        return None

    def _skip(self, stretch: Leg, level: int) -> int:
        """Pass the longest block, of 2^level strides at most, in which bounds show that all losses are above the target, or
        that none is. Returns the level of the block, or the level of a leaf if there is no such block.
        """
        watch = self.watch
        for block in range(level, HIT_SETTINGS.leaf_level, -1):
            end = self.t + stretch.stride * 2**block
            first, last = stretch.fade(np.array([self.t + stretch.stride, end]))[[0, -1]]
            above = stretch.least(block) * last > watch.target
            if watch.first and not above:
                continue
            after = stretch.after(block)
            if above:
                watch.last_above = max(watch.last_above, end)
            elif stretch.most(block, after) * first > watch.target:
                continue
            stretch.state, self.t = after, end
            return block
        return HIT_SETTINGS.leaf_level

    def _leaf(self, stretch: Leg, count: int) -> int | None:
        """Walk ``count`` steps of a stretch and record every loss."""
        stride, t = stretch.stride, self.t
        losses = self._walked(stretch, count)
        self.walked += count
        if self.walked > HIT_SETTINGS.most_walked:
            self.watch.stop(t)
            return None
        times = t + stride * np.arange(1, count + 1)
        self.t += stride * count
        return self.watch.see(losses * stretch.fade(times), t + stride, stride)

    def _walked(self, stretch: Leg, count: int) -> Array:
        """The losses after each of ``count`` steps; the stretch's state moves along."""
        if stretch.stride == 1:
            G, b, batch = self.path.system(self.t)
            X, N, still = stretch.state.A.copy(), stretch.state.Q.copy(), np.ones(count)
            sums = scan(G, 0 * G, b, 0 * b, still, still / batch, X, N, stretch.row, stretch.weights, self.wn)
            stretch.state = MomentMap(X, MomentMap.matrix(X).drift, N)
            return sums[0] + sums[1]
        losses = np.empty(count)
        for j in range(count):
            stretch.state = stretch.after(0)
            y, noise = stretch.losses(stretch.state)
            losses[j] = (stretch.weights * y**2).sum() + noise
        return losses
