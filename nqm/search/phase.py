"""Steps to a target over two settings at once: a map, with the edge of stability drawn in.

All cells of a map are settings of one pass. Time goes up by powers of the step that all cells share, at first one by one,
then with sixteen looks to an octave, from a thousand steps on with four; from the look before the first one at or below the
target it comes down again, bisecting by the smaller powers::

    looks at 1, 2, ..., 64, 68, 72, ..., 128, 136, ..., 1024, 1280, ...        then  t <- t + 2^i while the loss stays above

A loss that only falls, or falls and then rises to its floor, is hit where `steps_to_target` says. One that swings through
the target and back between two looks is hit later here. Noise from a steady state's own kind only grows, so a cell whose
noise alone is above the target is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..engine.kernels.compiled import kernels
from ..engine.moments import MomentMap
from ..engine.run import Outcome, number, numbers
from ..engine.trajectory import Trajectory
from ..optimizers.base import Optimizer, Parameter, fill, free_parameters, parameters
from ..problems.base import MAX_STEPS, check_batch_size, check_target
from ..problems.quadratic import Quadratic
from ..types import Array, Wrong

PASS = 16384  # settings times nodes times slots in one pass: its powers stay in cache
MOST = 512  # values along an axis
BISECTIONS = 40
FEW = 1024  # steps among which a swing may be hit that is over soon


@dataclass(frozen=True)
class Axis:
    """Values of one hyper-parameter, or of the batch size, spaced as the parameter is searched.

    Learning rates and batch sizes by equal factors, momenta and decays by equal factors of 1 - value, powers evenly.

    >>> str(Axis("momentum", 0, 0.99, 3))
    'momentum=0..0.99..3'
    """

    name: str
    low: float
    high: float
    n: int = 32

    def __post_init__(self) -> None:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (self.low, self.high, self.n))
        if not numeric or not 0 <= self.low < self.high < math.inf:
            raise Wrong(f"{self.name}: an axis goes from a low to a higher value, got {self.low!r} to {self.high!r}")
        if self.n != int(self.n) or not 2 <= self.n <= MOST:
            raise Wrong(f"{self.name}: an axis has 2 to {MOST} values, got {self.n!r}")

    def __str__(self) -> str:
        return f"{self.name}={self.low!r}..{self.high!r}..{self.n}"


@dataclass(frozen=True, eq=False)
class PhaseMap:
    """Answer of `phase_map`: ``steps[j, i]`` is at ``x.values[i]``, ``y.values[j]``, NaN where the target is not reached.

    ``boundary`` has points (x, y) where stability ends, in order of the axis along which it was looked for.
    """

    x: Scale
    y: Scale
    steps: Array
    outcomes: tuple[tuple[Outcome, ...], ...]
    boundary: Array
    optimizer: Optimizer
    target: float
    batch_size: float | None

    def best(self) -> dict[str, Any] | None:
        """The cell with the fewest steps."""
        if not np.isfinite(self.steps).any():
            return None
        j, i = np.unravel_index(np.nanargmin(self.steps), self.steps.shape)
        x, y = float(self.x.values[i]), float(self.y.values[j])
        given = {self.x.name: x, self.y.name: y}
        chosen = fill(self.optimizer, {name: value for name, value in given.items() if name != "batch_size"})
        batch_size = given.get("batch_size", self.batch_size)
        return {
            "x": number(x), "y": number(y), "steps": number(self.steps[j, i]), "optimizer": str(chosen),
            "batch_size": number(batch_size),
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row for each cell."""
        return [
            {self.x.name: number(x), self.y.name: number(y), "steps": number(T), "outcome": outcome.name}
            for y, row, outcomes in zip(self.y.values, self.steps, self.outcomes, strict=True)
            for x, T, outcome in zip(self.x.values, row, outcomes, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "optimizer": str(self.optimizer),
            "target": self.target,
            "batch_size": number(self.batch_size),
            "x": self.x.to_dict(),
            "y": self.y.to_dict(),
            "steps": numbers(self.steps),
            "outcome": [[outcome.name for outcome in row] for row in self.outcomes],
            "boundary": numbers(self.boundary),
            "best": self.best(),
        }


@dataclass(frozen=True, eq=False)
class Scale:
    """An axis on an optimizer: its values, and how they are spaced."""

    name: str
    scale: str
    values: Array
    parameter: Parameter | None  # None for the batch size

    @classmethod
    def of(cls, axis: Axis, optimizer: Optimizer) -> Scale:
        """An axis from what a user gave, refused by name."""
        known = parameters(optimizer)
        if axis.name == "batch_size":
            return cls(axis.name, "log", _spaced(axis, "log"), None)
        if axis.name not in known:
            raise Wrong(f"{optimizer} has no parameter {axis.name!r}; an axis is batch_size or {', '.join(known)}")
        kind = known[axis.name].kind
        values = _spaced(axis, kind.scale)
        values = np.unique(np.rint(values)) if kind.integer else values
        if not np.all(kind.valid(values)):
            wrong = values[~kind.valid(values)][0]
            raise Wrong(f"{axis.name} must be {kind.allowed}, and the axis has {wrong:g}")
        return cls(axis.name, kind.scale, values, known[axis.name])

    def between(self, a: Array, b: Array) -> Array:
        """Halfway, on the scale."""
        if self.scale == "log":
            return np.sqrt(a * b)
        if self.scale == "memory":
            return 1 - np.sqrt((1 - a) * (1 - b))
        return (a + b) / 2

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "scale": self.scale, "values": numbers(self.values)}


def _spaced(axis: Axis, scale: str) -> Array:
    if scale == "log":
        if axis.low <= 0:
            raise Wrong(f"{axis.name} must be positive on an axis by equal factors, got {axis.low!r}")
        return np.geomspace(axis.low, axis.high, int(axis.n))
    if scale == "memory":
        if axis.high >= 1:
            raise Wrong(f"{axis.name} must be in [0, 1), got {axis.high!r}")
        return 1 - np.geomspace(1 - axis.low, 1 - axis.high, int(axis.n))
    return np.linspace(axis.low, axis.high, int(axis.n))


def phase_map(
    problem: Quadratic, optimizer: Optimizer, x: Axis, y: Axis, batch_size: float | None = None, *, target: float
) -> PhaseMap:
    """Steps to a target loss over a grid of two settings, and where stability ends.

    Parameters
    ----------
    optimizer : with every hyper-parameter set but those of the axes; its steps must be alike, or repeat.
    x, y : hyper-parameters of the optimizer by name, or ``batch_size``.
    batch_size : unless it is an axis.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> found = phase_map(Quadratic(Spectrum.power_law(1000)), HeavyBall(), Axis("lr", 0.01, 1, 3),
    ...                   Axis("momentum", 0, 0.9, 2), target=0.1, batch_size=1024)
    >>> found.steps.tolist()
    [[52814.0, 5286.0, 535.0], [5286.0, 533.0, 61.0]]
    """
    if not isinstance(problem, Quadratic):
        raise Wrong(f"phase_map needs a Quadratic problem, got {type(problem).__name__}")
    target = check_target(target)
    if x.name == y.name:
        raise Wrong(f"the axes of a map must differ, got {x.name} twice")
    if ("batch_size" in (x.name, y.name)) == (batch_size is not None):
        raise Wrong("phase_map needs batch_size= or an axis of that name, and not both")
    scales = Scale.of(x, optimizer), Scale.of(y, optimizer)
    if left := [name for name in free_parameters(optimizer) if name not in (x.name, y.name)]:
        raise Wrong(f"phase_map needs {', '.join(left)} of {optimizer} set; only those of the axes may be free")
    size = None if batch_size is None else check_batch_size(batch_size)
    smooth = len(_member(optimizer, scales).initial()) == 1
    grid = _Grid(problem.nodes.smooth if smooth else problem.nodes.fine, optimizer, scales, target, size)
    steps, outcomes = grid.solve()
    return PhaseMap(*scales, steps, outcomes, grid.boundary(), optimizer, target, size)


def _member(optimizer: Optimizer, scales: tuple[Scale, Scale]) -> Optimizer:
    """One of the optimizers of a map, refused if its steps are neither alike nor repeat."""
    values = {s.name: _plain(s, s.values[0]) for s in scales if s.parameter}
    member = fill(optimizer, values)
    whole = member.linear and not member.depends_on_horizon
    if not whole or member.cycle == 0 or not member.steady or member.repeats_from:
        raise Wrong(f"phase_map needs an optimizer whose steps are alike or repeat, and those of {optimizer} do not")
    return member


def _plain(scale: Scale, value: Any) -> Any:
    assert scale.parameter is not None
    return int(value) if scale.parameter.kind.integer else float(value)


class _Grid:
    """The cells of a map in passes of like structure."""

    def __init__(
        self, problem: Quadratic, optimizer: Optimizer, scales: tuple[Scale, Scale], target: float, batch_size: float | None
    ) -> None:  # fmt: skip
        self.spectrum, self.optimizer, self.scales = problem.spectrum, optimizer, scales
        self.target, self.batch_size = target, batch_size
        x, y = (scale.values for scale in scales)
        self.shape, self.count = (len(y), len(x)), len(x) * len(y)
        self.cells = {scales[0].name: np.tile(x, len(y)), scales[1].name: np.repeat(y, len(x))}

    def solve(self) -> tuple[Array, tuple[tuple[Outcome, ...], ...]]:
        """Steps and outcome of every cell."""
        steps = np.zeros(self.count)
        outcomes = np.full(self.count, Outcome.reached, dtype=object)
        if self.spectrum.initial_loss > self.target:
            with np.errstate(all="ignore"):
                for rows, member in self._passes():
                    steps[rows], never = _Pass(member, self.spectrum, self.target, self._batch_sizes(rows)).go()
                    missed, stable = np.isnan(steps[rows]), self._stable(member, len(rows))
                    outcomes[rows[missed]] = Outcome.out_of_steps
                    outcomes[rows[missed & never]] = Outcome.above_floor
                    outcomes[rows[missed & ~stable]] = Outcome.diverged
        return steps.reshape(self.shape), tuple(tuple(row) for row in outcomes.reshape(self.shape))

    def _batch_sizes(self, rows: Array) -> Array:
        return self.cells["batch_size"][rows] if self.batch_size is None else np.full(len(rows), self.batch_size)

    def _passes(self) -> Iterator[tuple[Array, Optimizer]]:
        """Cells that share a pass, slow ones together, and the optimizer that holds their settings as arrays."""
        structural = [self.cells[s.name] for s in self.scales if s.parameter and s.parameter.kind.structural]
        keys = np.stack([np.zeros(self.count), *structural], axis=1)
        pace = self.cells.get("lr", np.zeros(self.count))
        for key in np.unique(keys, axis=0):
            group = np.flatnonzero((keys == key).all(axis=1))
            group = group[np.argsort(pace[group], kind="stable")]
            slots = len(self._filled(group[:1]).initial())
            chunk = max(1, PASS // (slots * len(self.spectrum)))
            for first in range(0, len(group), chunk):
                rows = group[first : first + chunk]
                yield rows, self._filled(rows)

    def _filled(self, rows: Array) -> Optimizer:
        values: dict[str, Any] = {}
        for s in self.scales:
            if s.parameter:
                cells = self.cells[s.name][rows]
                values[s.name] = _plain(s, cells[0]) if s.parameter.kind.structural else cells[:, None]
        return fill(self.optimizer, values)

    def boundary(self) -> Array:
        """Where stability ends along one axis, for each value of the other: along the learning rate, if it is one."""
        x, y = self.scales
        along, other = (y, x) if y.name == "lr" else (x, y)
        if along.parameter is None or any(s.parameter and s.parameter.kind.structural for s in (x, y)):
            return np.zeros((0, 2))

        def stable(at: Array) -> Array:
            values = {s.name: v[:, None] for s, v in ((along, at), (other, other.values)) if s.parameter}
            return self._stable(fill(self.optimizer, values), len(at))

        low, high = (np.full(len(other.values), end) for end in (along.values[0], along.values[-1]))
        first = stable(low)
        crosses = first != stable(high)
        for _ in range(BISECTIONS if crosses.any() else 0):
            middle = along.between(low, high)
            same = stable(middle) == first
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        at, across = low[crosses], other.values[crosses]
        return np.stack([across, at] if along is y else [at, across], axis=1)

    def _stable(self, member: Optimizer, count: int) -> Array:
        """Whether each of so many settings is stable."""
        h = self.spectrum.h
        # Steps that are alike lose stability at an end of the spectrum. A cycle can resonate with any mode.
        modes = h if member.cycle > 1 else np.array([h.min(), h.max()])
        with np.errstate(all="ignore"):
            return np.broadcast_to(Trajectory(member, modes).stable(), (count,))


class _Pass:
    """Cells whose powers are taken together. Times are in units of a cycle, which is one step for most."""

    def __init__(self, member: Optimizer, spectrum: Any, target: float, batch_sizes: Array) -> None:
        dynamics = Trajectory(member, spectrum.h)
        self.shape = len(batch_sizes), len(spectrum)
        self.target, self.batch_sizes = target, batch_sizes
        self.ws, self.wn = spectrum.signal_mass, spectrum.noise_mass
        self.cycle = dynamics.period
        self.limit = MAX_STEPS // self.cycle
        self.start, self.powers = dynamics.start(), [dynamics.stationary()]
        self.row, self.one = dynamics.row(self.cycle), np.ones((1, dynamics.modes))

    def go(self) -> tuple[Array, Array]:
        """Steps, NaN where the target is not reached; and which cells will never reach it, as noise alone is above."""
        base, t, gap, hit, never = self._up()
        for level in range(int(gap[hit].max(initial=0)) - 1, -1, -1):
            ahead = self.powers[level] @ base
            go_on = hit & (gap > level) & ~(self._losses(ahead)[0] <= self.target)
            mask = self._modes(go_on)
            base = MomentMap(
                np.where(mask, ahead.A, base.A),
                np.where(mask, ahead.drift, base.drift),
                np.where(mask, ahead.Q, base.Q),
            )
            t = t + np.where(go_on, 2**level, 0)
        return np.where(hit, (t + 1.0) * self.cycle, np.nan), never

    def _up(self) -> tuple[MomentMap, Array, Array, Array, Array]:
        """Look until every cell is decided: the state and the time before each one's hit, and the log2 of the gap to it."""
        cells = self.shape[0]
        X, N = self.start.A.copy(), self.start.Q.copy()
        t, gap = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
        hit, never = np.zeros(cells, dtype=bool), np.zeros(cells, dtype=bool)
        state, now = self.start, 0
        while now < self.limit and not (hit | never).all():
            level = max(0, now.bit_length() - (5 if now < FEW else 3))
            ahead = self._power(level) @ state
            loss, noise = self._losses(ahead)
            new = ~hit & ~never & (loss <= self.target)
            if new.any():
                mask = self._modes(new)
                X[..., mask], N[..., mask] = state.A[..., mask], state.Q[..., mask]
                t[new], gap[new] = now, level
            hit |= new
            never |= ~hit & ~((noise <= self.target) & (loss < math.inf))
            state, now = ahead, now + 2**level
        return MomentMap(X, MomentMap.matrix(X).drift, N), t, gap, hit, never

    def _modes(self, cells: Array) -> Array:
        return np.repeat(cells, self.shape[1])

    def _power(self, level: int) -> MomentMap:
        while len(self.powers) <= level:
            self.powers.append(self.powers[-1] @ self.powers[-1])
        return self.powers[level]

    def _losses(self, state: MomentMap) -> tuple[Array, Array]:
        """Loss of each cell, and the noise in it."""
        m_signal, m_noise = kernels().seen(state.A, state.Q, self.one, self.row)
        noise = (m_noise.reshape(self.shape) @ self.wn) / self.batch_sizes
        return m_signal.reshape(self.shape) @ self.ws + noise, noise
