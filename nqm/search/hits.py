"""The true first hit of a target, also where the loss oscillates or rises again.

Bisection finds *a* crossing. Here time is covered by blocks of 2^i steps, each either excluded by a bound or split.
Within a stretch of like steps, what the stretch inherits is a vector that moves as ``x -> A x`` (the signal, and
factors of the noise so far), and what it adds, Q_j, only grows. With r the read-out and u = (A - I) x the change of the
first step, ``r A^j x = r x + sum_{l<j} r A^l u``, so after 1 to 2^i steps r x has moved by at most ``W_i |u|`` where::

    W_0 = |r|,        W_{i+1} = W_i + W_i |A^(2^i)|        (elementwise sizes)

and the loss in the block is at least ``sum w (|r x| - W_i |u|)_+^2 + r Q r``, and at most the same with a plus and the
noise of its end. Both are rigorous, for any linear optimizer, and cost no more than the powers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..engine.kernels.compiled import kernels
from ..engine.moments import MomentMap
from ..engine.run import Hit, Outcome
from ..engine.schedule import MAX_PIECES, Schedule, as_schedule
from ..engine.trajectory import SCAN, Dynamics, Powers, fade
from ..optimizers.base import Optimizer, require_set
from ..problems.base import MAX_STEPS, AnySchedule, Problem, check_batch_size, check_target
from ..types import Array, Wrong
from .walk import walk_to

LEAF = 6  # blocks of 2^LEAF steps are walked
MAX_WALK = 10**6  # steps walked in all: undamped swings can keep a loss undecided for as long as one likes
MAX_PHASES = 4096  # of a cycle that is looked at phase by phase


def steps_to_target(
    problem: Problem,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: AnySchedule = None,
    max_steps: int = MAX_STEPS,
    until: Literal["first", "settled"] = "first",
) -> Hit:
    """The first step at which the expected loss is at or below the target, or the step after the last one above it.

    Exact for every optimizer with whole steps; on `LeastSquares` every step is looked at, 10^7 at most. A `Polyak` average
    over a fraction of the run is a different run at each horizon, and there the smallest horizon is bracketed on a grid of
    ratio 1.02 and bisected.

    >>> from nqm import Quadratic, SGD, Spectrum
    >>> steps_to_target(Quadratic(Spectrum.power_law(10_000)), SGD(1.99), batch_size=16, target=4.2).steps
    2
    """
    require_set(optimizer, "steps_to_target")
    batch_size, target = check_batch_size(batch_size), check_target(target)
    if until not in ("first", "settled"):
        raise Wrong(f"until must be 'first' or 'settled', got {until!r}", argument="until")
    if not 0 <= max_steps <= MAX_STEPS or max_steps != int(max_steps):
        raise Wrong(f"max_steps must be a whole number from 0 to 10^9, got {max_steps!r}", argument="max_steps")
    changing = schedule is not None and not isinstance(schedule, Schedule)
    fixed = as_schedule(schedule, min(int(max_steps), 10**6 if changing else MAX_PIECES))
    with np.errstate(over="ignore", invalid="ignore"):
        if optimizer.at_horizon(1) != optimizer.at_horizon(MAX_STEPS):
            if until == "settled":
                raise Wrong(
                    f"until='settled' needs one run, but {optimizer} is another run at each horizon; set its start",
                    argument="until",
                )
            steps = _horizon_hit(problem, optimizer, batch_size, target, fixed, int(max_steps))
        elif not problem.separable:
            steps, max_steps = walk_to(problem, optimizer, batch_size, target, fixed, int(max_steps), until)
        else:
            march = _March(problem, optimizer, batch_size, target, fixed, int(max_steps), until)
            steps, max_steps = march.go(), march.limit
    return _answer(problem, optimizer, batch_size, target, fixed, int(max_steps), steps)


def _answer(
    problem: Problem,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: Schedule | None,
    limit: int,
    steps: int | None,
) -> Hit:
    def loss_at(t: int) -> float:
        loss = problem.loss(optimizer, t, batch_size, schedule)
        return loss if math.isfinite(loss) else math.inf

    if steps is not None:
        return Hit(steps, Outcome.reached, Outcome.reached.value.format(target=target, steps=steps), loss_at(steps))
    floor = problem.floor(optimizer, batch_size, schedule)
    if math.isinf(floor):
        outcome, loss = Outcome.diverged, math.inf
    elif floor >= target:
        outcome, loss = Outcome.above_floor, floor
    else:
        outcome, loss = Outcome.out_of_steps, loss_at(limit)
    numbers = {"target": target, "floor": floor, "loss": loss}
    return Hit(None, outcome, problem.sentence(outcome, optimizer, batch_size, schedule, steps=limit, **numbers), loss)


class _March:
    """One walk over time in blocks; the state is always the one after step ``t``, and times up to t are decided."""

    def __init__(
        self, problem: Problem, optimizer: Optimizer, batch_size: float, target: float,
        schedule: Schedule | None, limit: int, until: str,
    ) -> None:  # fmt: skip
        self.dynamics = Dynamics(optimizer.at_horizon(MAX_STEPS), problem.spectrum.h, schedule)
        self.ws, self.wn = problem.spectrum.signal_mass, problem.spectrum.noise_mass / batch_size
        limit = min(limit, MAX_WALK) if self.dynamics.period == 0 else limit
        self.target, self.limit, self.until = target, limit, until
        self.never, self.walked = False, 0
        self.t, self.state = 0, self.dynamics.start()
        self.last_above = 0 if float(self.ws.sum()) > target else -1

    def go(self) -> int | None:
        if self.until == "first" and self.last_above < 0:
            return 0
        d = self.dynamics
        while self.t < self.limit and not self.never:
            if 1 < d.period <= MAX_PHASES and self.t >= d.repeats_from:
                return self._phases()
            end = min(d.same_until(self.t), self.limit)
            if end - self.t > 1:
                hit = self._alternating(int(end)) if self._flips() else self._stretch(d.powers(self.t), int(end), 1)
            else:
                hit = self._walk(min(self.limit, self.t + SCAN))
            if hit is not None:
                return hit
        if self.until == "first" or self.never or self.last_above >= self.limit:
            return None
        return self.last_above + 1

    def _see(self, losses: Array, first: int, stride: int = 1) -> int | None:
        """Decide consecutive times from their losses; the first at or below the target, if that is asked."""
        above = ~(losses <= self.target)
        if self.until == "first" and not above.all():
            return first + stride * int(np.argmin(above))
        if above.any():
            self.last_above = max(self.last_above, first + stride * int(np.flatnonzero(above)[-1]))
        if not np.isfinite(losses[-1]):
            self.never, self.limit = True, min(self.limit, first + stride * (len(losses) - 1))
        return None

    def _walk(self, to: int) -> int | None:
        """Step by step, for steps that all differ."""
        d, t = self.dynamics, self.t
        affine = d.affine(t)
        if affine:
            self.state, signal, noise = d.scan(affine, self.state, t, to, self.ws, self.wn)
            losses = (signal + noise) * self._fade(np.arange(t + 1, to + 1), to)
            self.t = to
            return self._see(losses, t + 1)
        self.state = d.move(self.state, t, t + 1)
        self.t = t + 1
        m_signal, m_noise = d.read(self.state, self.t)
        return self._see(np.array([m_signal @ self.ws + m_noise @ self.wn]), self.t)

    def _fade(self, times: Any, reference: int) -> Any:
        return fade(self.dynamics.optimizer, times, reference)

    def _phases(self) -> int | None:
        """Steps that repeat in a cycle: each phase of the cycle is a stretch of like steps of its own."""
        d, period = self.dynamics, self.dynamics.period
        hit = self._interleaved(lambda t: d.cycle((t - d.repeats_from) % period), period, self.limit)
        self.t = self.limit
        if self.until == "first":
            return hit
        return None if self.never or self.last_above >= self.limit else self.last_above + 1

    def _flips(self) -> bool:
        """Whether slow modes change sign at every step, so that only every other step looks smooth."""
        A = self.dynamics.powers(self.t)[0].A
        return bool(np.any(np.einsum("iix->x", A) < -0.5))

    def _alternating(self, end: int) -> int | None:
        """Odd and even steps apart, each a stretch of double steps."""
        powers, t = self.dynamics.powers(self.t), self.t
        twice = Powers(powers[1])
        last = t + (end - t) // 2 * 2
        state_end = powers.move(self.state, last - t)
        hit = self._interleaved(lambda _: twice, 2, last)
        self.t, self.state = last, state_end
        if hit is None and last < end and not self.never:
            hit = self._stretch(powers, end, 1)
        return hit

    def _interleaved(self, powers_from: Callable[[int], Powers], period: int, limit: int) -> int | None:
        """Times of each phase in turn, by powers of a whole period; the first hit of all, if hits are asked."""
        d, start, end = self.dynamics, (self.t, self.state), limit
        best: int | None = None
        nevers = []
        for phase in range(period):
            self.t, self.state = start[0] + phase, d.move(start[1], start[0], start[0] + phase)
            if self.t > limit or (phase and self._see(self._now(), self.t) is not None):
                best = min(best or self.t, self.t) if self.t <= limit else best
                break
            self.never = False
            hit = self._stretch(powers_from(self.t), limit, period)
            nevers.append(self.never)
            if hit is not None:
                best, limit = hit, hit - 1
        # No phase will ever hit; or one never settles.
        self.never = end >= self.limit and (
            len(nevers) == period and all(nevers) if self.until == "first" else any(nevers)
        )
        return best

    def _now(self) -> Array:
        m_signal, m_noise = self.dynamics.read(self.state, self.t)
        return np.array([m_signal @ self.ws + m_noise @ self.wn])

    def _stretch(self, powers: Powers, end: int, stride: int) -> int | None:
        """Cover the times t + stride, t + 2 stride, ... up to ``end``, all reached by powers of one map."""
        r = self.dynamics.row(self.t + stride)
        r_now = self.t + stride
        X, weights = self._inherit()
        state = MomentMap.matrix(X)
        bounds = _Bounds(powers, r)
        level = 0
        while (left := (end - self.t) // stride) > 0 and not self.never:
            level = min(level + 1, left.bit_length() - 1)
            while level > LEAF:
                fade = float(np.min(self._fade(self.t + stride * 2**level, r_now)))
                low, moved = bounds.low(level, state, weights, self.wn) * fade, None
                if low > self.target:
                    self.last_above = max(self.last_above, self.t + stride * 2**level)
                elif self.until == "settled":
                    moved = powers[level] @ state
                    fade = float(np.max(self._fade(self.t + stride, r_now)))
                    if bounds.high(level, state, moved, weights, self.wn) * fade > self.target:
                        level -= 1
                        continue
                else:
                    level -= 1
                    continue
                state = moved or powers[level] @ state
                self.t += stride * 2**level
                break
            else:
                count = min(2**LEAF, left)
                times = self.t + stride * np.arange(1, count + 1)
                state, losses = self._leaf(powers[0], state, r, weights, count, stride)
                self.walked += count
                if self.walked > MAX_WALK:
                    self.limit, self.never = self.t, True
                    break
                hit = self._see(losses * self._fade(times, r_now), self.t + stride, stride)
                self.t += stride * count
                if hit is not None:
                    return hit
                level = LEAF
            if end >= self.limit and not self.dynamics.optimizer.averages:
                # From here on the noise only grows, and the signal is not negative.
                self.never |= self._added(state, r) > self.target
        self.state = self._rejoin(state, weights)
        return None

    def _inherit(self) -> tuple[Array, Array]:
        """The state as columns that move alike: the signal, and a factor of the noise covariance; with their weights."""
        N = self.state.Q
        if not N.any():
            return self.state.A, self.ws[None]
        size, axes = np.linalg.eigh(N.transpose(2, 0, 1))
        factor = (axes * np.sqrt(np.maximum(size, 0))[:, None, :]).transpose(1, 2, 0)
        X = np.ascontiguousarray(np.concatenate([self.state.A, factor], axis=1))
        return X, np.stack([self.ws, *[self.wn] * len(N)])

    def _rejoin(self, state: MomentMap, weights: Array) -> MomentMap:
        signal, factor = state.A[:, :1], state.A[:, 1:]
        N = state.Q + np.einsum("icx,jcx->ijx", factor, factor)
        joined = MomentMap.matrix(signal)
        return MomentMap(joined.A, joined.drift, N)

    def _added(self, state: MomentMap, r: Array) -> float:
        return float(np.einsum("ix,ijx,jx,x->", r, state.Q, r, self.wn))

    def _leaf(
        self, step: MomentMap, state: MomentMap, r: Array, weights: Array, count: int, stride: int
    ) -> tuple[MomentMap, Array]:
        """Walk ``count`` steps and report the loss after each."""
        if stride == 1:
            G, b, batch = self.dynamics.system(self.t)
            X, N, still = state.A.copy(), state.Q.copy(), np.ones(count)
            sums = kernels().scan(G, 0 * G, b, 0 * b, still, still / batch, X, N, r, weights, self.wn)
            return MomentMap(X, MomentMap.matrix(X).drift, N), sums[0] + sums[1]
        losses = np.empty(count)
        for j in range(count):
            state = step @ state
            losses[j] = (weights * np.einsum("ix,icx->cx", r, state.A) ** 2).sum() + self._added(state, r)
        return state, losses


class _Bounds:
    """Lower and upper bounds of the loss in a block of 2^level steps."""

    def __init__(self, powers: Powers, r: Array) -> None:
        self.powers, self.r = powers, r
        self.W = [np.abs(r)]
        self.G = powers[0].A.copy()
        i = np.arange(len(self.G))
        self.G[i, i] = powers[0].drift

    def _reach(self, level: int, state: MomentMap) -> tuple[Array, Array]:
        """|r x| of each column, and how far it can move within the block."""
        while len(self.W) <= level:
            W = self.W[-1]
            self.W.append(W + np.einsum("ix,ijx->jx", W, np.abs(self.powers[len(self.W) - 1].A)))
        y = np.abs(np.einsum("ix,icx->cx", self.r, state.A))
        u = np.abs(np.einsum("ijx,jcx->icx", self.G, state.A))
        return y, np.einsum("ix,icx->cx", self.W[level], u)

    def low(self, level: int, state: MomentMap, weights: Array, wn: Array) -> float:
        y, swing = self._reach(level, state)
        least = np.maximum(y - swing, 0)
        return float((weights * least**2).sum()) + float(np.einsum("ix,ijx,jx,x->", self.r, state.Q, self.r, wn))

    def high(self, level: int, state: MomentMap, end: MomentMap, weights: Array, wn: Array) -> float:
        y, swing = self._reach(level, state)
        most = float((weights * (y + swing) ** 2).sum())
        return most + float(np.einsum("ix,ijx,jx,x->", self.r, end.Q, self.r, wn))


def _horizon_hit(
    problem: Problem,
    optimizer: Optimizer,
    batch_size: float,
    target: float,
    schedule: Schedule | None,
    limit: int,
) -> int | None:
    def below(t: int) -> bool:
        if not problem.separable and schedule is None:
            return bool(problem.nodes.fine.curve(optimizer, batch_size)(t)[0] <= target)
        return problem.loss(optimizer, t, batch_size, schedule) <= target

    if optimizer.at_horizon(1).cycle == 0:
        limit = min(limit, 10**5)  # each horizon is walked anew
    low, t = -1, 0
    while not below(t):
        if t >= limit:
            return None
        low, t = t, min(limit, max(t + 1, math.ceil(1.02 * t)))
    while t - low > 1:
        middle = (low + t) // 2
        low, t = (low, middle) if below(middle) else (middle, t)
    return t
