"""An optimizer on least squares, where one number, the loss itself, couples all modes.

The gradient of a batch of B examples at y = p . x has, for Gaussian features, noise of variance

::

    v = h (h m + tau + sigma^2) / B,      m = E y^2 on the mode,   tau = sum n h m over all modes

so a step is ``M -> A M A' + v b b'`` on each mode. `Coupled.walk` takes these steps one by one. The steady state and
stability need no stepping. A cycle has P phases, the steps after which the systems repeat. Let g_ij be the moment m at
phase i per unit of noise variance at phase j, summed over all the past. Then noise feeds back through ``h^2 g / B`` on each
mode, and through ``K = sum n h g (1 - h^2 g / B)^-1 h / B`` over all modes. Both are non-negative, so the run is stable if A
is stable and both have a spectral radius below 1.

In comments on arrays, x is a mode of a setting (all modes of a setting, then those of the next), and i and j are slots or
phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from ..engine.kernels import loops
from ..engine.moments import MomentMap, spectral_radius
from ..engine.schedule import Schedule
from ..engine.spectrum import Spectrum
from ..engine.trajectory import MAX_STEPS, STABLE, Trajectory, fade
from ..optimizers.base import Optimizer
from ..types import Array, Wrong


@dataclass(frozen=True, eq=False)
class Steady:
    """How noise feeds back in the steady state; arrays have one entry for each setting."""

    radius: Array  # spectral radius of A
    own: Array  # spectral radius of h^2 g / B, the largest over modes
    gain: Array  # spectral radius of K: the tau that a unit of tau causes
    floor: Array  # steady-state loss

    @property
    def stable(self) -> Array:
        """Whether each setting is stable."""
        return (self.radius <= STABLE) & (self.own < 1) & (self.gain < 1)


class Coupled:
    """One optimizer with one schedule and one batch size on the least squares of a spectrum.

    Hyper-parameters may be arrays that broadcast against the curvatures, as in `Trajectory`; each setting has a tau of its
    own. As in `Trajectory`, a state is a map with one column. Its Q holds B times the moments that noise has added.
    """

    def __init__(
        self, optimizer: Optimizer, spectrum: Spectrum, label_noise: float, batch_size: float, schedule: Schedule | None
    ) -> None:
        check_gradient_point(optimizer)
        self.trajectory = Trajectory(optimizer, spectrum.h, schedule)
        self.optimizer, self.schedule = optimizer, schedule
        self.label_noise, self.per_example = float(label_noise), 1 / batch_size
        self.nodes, self.settings = len(spectrum), self.trajectory.modes // len(spectrum)
        self.start, self.read, shape = self.trajectory.start, self.trajectory.read, self.trajectory.shape
        self.h, self.c, self.s, self.mass = (
            np.broadcast_to(column, shape).flatten()  # A read-only view would make numba compile the loop again.
            for column in (spectrum.h, spectrum.c, spectrum.s, spectrum.count * spectrum.h)
        )

    def walk(self, state: MomentMap, t: int, to: int) -> tuple[MomentMap, Array, Array]:
        """The state after ``to`` steps, from the state after t steps; signal and noise after each step, (settings, steps)."""
        X, N = state.A.copy(), state.Q.copy()
        signal, noise = np.empty((2, self.settings, to - t))
        d = self.trajectory
        for begin, end, system in d.stretches(t, to):
            parts = loops().scan_coupled(
                *system, X, N, d.row(end), (self.mass * self.s / 2)[None], self.mass / 2,
                d.gradient_point(begin), self.h, self.c, self.s, self.mass, self.label_noise, self.per_example, self.nodes,
            )  # fmt: skip
            seen = fade(self.optimizer, np.arange(begin + 1, end + 1), end)
            for total, part in zip((signal, noise), parts, strict=True):
                total[:, begin - t : end - t] = part * seen
        return MomentMap.matrix(X, N), signal, noise

    def move(self, state: MomentMap, t: int, to: int) -> MomentMap:
        """The state after ``to`` steps, from the state after t steps."""
        return self.walk(state, t, to)[0]

    def end(self, t: int) -> tuple[Array, Array]:
        """What `read` gives after t steps from the start."""
        return self.read(self.move(self.start(), 0, t), t)

    def steady(self) -> Steady:
        """The steady state at the last settings of the schedule."""
        d, shape = self.trajectory, (self.settings, self.nodes)
        radius = d.stationary().radius().reshape(shape).max(axis=1)
        phases, g, floors = self._responses()
        P = len(phases)
        loud = self.c[:, None] * self.per_example / np.array([d.system(t)[2] for t in phases])  # (x, i): h / B
        with np.errstate(all="ignore"):
            own = self.h[:, None, None] * loud[:, :, None] * g  # (x, i, j): v at phase i per v at j, on the same mode
            alone = spectral_radius(own).reshape(shape).max(axis=1)
            onward = _inverse(np.eye(P) - own) * loud[:, None, :]  # (x, i, j): v at phase i per tau at j
            K = (self.mass[:, None, None] * (g @ onward)).reshape(*shape, P, P).sum(axis=1)  # (setting, i, j)
            tau = _inverse(np.eye(P) - K).sum(axis=2) * self.label_noise  # (setting, i), including sigma^2
            v = (onward @ tau.repeat(self.nodes, axis=0)[..., None])[..., 0]  # (x, i)
            floor = (self.mass * (floors * v).sum(axis=1)).reshape(shape).sum(axis=1) / 2
        still = self.schedule is not None and self.schedule.at(d.repeats_from)[0] == 0  # The learning rate ends at 0.
        floor = np.where(still, np.nan, np.zeros_like(floor) if self.optimizer.averages else floor)
        found = Steady(radius, np.where(still, 0.0, alone), np.where(still, 0.0, spectral_radius(K)), floor)
        return replace(found, floor=np.where(found.stable, floor, np.inf))

    def _responses(self) -> tuple[list[int], Array, Array]:
        """The phases; g as (x, phase i of m, phase j of noise); and the moment of the read-out at phase 0, (x, j)."""
        d = self.trajectory
        first, period = (MAX_STEPS, 1) if d.period == 0 else (d.repeats_from, d.period)
        phases = list(range(first, first + period))
        keep = self._fed_back(phases) if self.optimizer.averages else np.arange(len(self.optimizer.initial()))
        steps = [_slots(d.step(t), keep).louder(d.system(t)[2]) for t in phases]  # unit noise, whatever the batch size
        looks, row = [d.gradient_point(t)[keep] for t in phases], d.row(first)[keep]
        quiet = [step.louder(0.0) for step in steps]
        g, floors = np.empty((d.modes, period, period)), np.empty((d.modes, period))
        for j in range(period):
            rounds = [*quiet[:j], steps[j], *quiet[j + 1 :]]
            state = _steady_state(rounds)
            floors[:, j] = state.seen(row)[1]
            for i in range(period):
                g[:, i, j] = state.seen(looks[i])[1]
                state = rounds[i] @ state
        return phases, g, floors

    def _fed_back(self, phases: list[int]) -> Array:
        """The slots that influence a later gradient; a plain sum of the past does not, and has no steady state."""
        d = self.trajectory
        links = np.max([np.abs(d.system(t)[0]).max(axis=2) for t in phases], axis=0) > 0
        live = np.any([np.abs(d.gradient_point(t)).max(axis=1) > 0 for t in phases], axis=0)
        for _ in live:
            live = live | links[live].any(axis=0)
        return np.flatnonzero(live)


def check_gradient_point(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose ``gradient_point`` is not where its system takes the gradient."""
    h = np.array([1.0, 0.5])
    (G, b), p = optimizer.system(h, 0), optimizer.gradient_point(0)
    for i, row in enumerate(G):
        for j, entry in enumerate(row):
            rest = np.broadcast_arrays(entry - h * b[i] * p[j], h)[0]  # G(0), which must not depend on the curvature
            if np.any(np.abs(rest[..., 0] - rest[..., 1]) > 1e-9 * (1 + np.abs(rest[..., 0]))):
                raise Wrong(
                    f"{type(optimizer).__name__}: the system does not take its gradient where gradient_point says; define "
                    "gradient_point(t), the weights p of the slots in the point at which the gradient is taken, so that "
                    "G(h) = G(0) + h b p'",
                    argument="optimizer",
                )


def _slots(step: MomentMap, keep: Array) -> MomentMap:
    """The map of some of the slots, which must not depend on the others."""
    A, Q = step.A[np.ix_(keep, keep)], step.Q[np.ix_(keep, keep)]
    return MomentMap(np.ascontiguousarray(A), np.ascontiguousarray(step.drift[keep]), np.ascontiguousarray(Q))


def _steady_state(rounds: list[MomentMap]) -> MomentMap:
    """The state without signal that a cycle of these steps does not change; NaN if a mode does not move."""
    whole = reduce(lambda earlier, later: later @ earlier, rounds)
    try:
        Q = np.ascontiguousarray(whole.fixed_point())
    except np.linalg.LinAlgError:
        Q = np.full_like(whole.Q, np.nan)
    return MomentMap.matrix(np.zeros_like(whole.A[:, :1]), Q)


def _inverse(a: Array) -> Array:
    """Inverses of small matrices, NaN where an entry is not finite."""
    if a.shape[-1] == 1:
        return 1 / a
    result = np.full_like(a, np.nan)
    finite = np.isfinite(a).all(axis=(-1, -2))
    result[finite] = np.linalg.inv(a[finite])
    return result
