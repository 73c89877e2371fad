"""A map of the steps to a target over two settings, with the edge of stability.

The cells of a map are computed together, by powers of the step. The loss is observed at every step at first, then sixteen
times in each doubling of time, and from a thousand steps on four times. Between the last observation above the target and the
first at or below it, bisection by smaller powers finds the step::

    observed at 1, 2, ..., 32, 34, 36, ..., 64, 68, ..., 1024, 1280, ...     then  t <- t + 2^i while the loss stays above

Where a loss only falls, or falls and then rises to its floor, the map agrees with `steps_to_target`. Where a loss swings
through the target and back between two observations, the map has a later step. At constant settings the noise part of the
loss never decreases, so a cell is given up once its noise alone is above the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.mean_field import SCAN_DETAIL
from ..engine.moments import MomentMap, Powers
from ..engine.readable import Listed, Tabular
from ..engine.run import Method, Outcome, number, numbers
from ..engine.spectrum import Spectrum
from ..engine.trajectory import Trajectory
from ..optimizers.base import Optimizer, Parameter, Written, as_optimizer, fill, free_parameters, parameters
from ..optimizers.checks import require_consistent
from ..problems.base import MAX_STEPS, Problem, check_batch_size, require_separable
from ..types import Array, Wrong
from .answer import check_goal
from .exact.family import equal_rows
from .followed import follow_to
from .settings import MAP_SETTINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..show.chart import OnAxes

MOST_VALUES = 512  # Largest number of values of an axis.


@dataclass(frozen=True)
class Axis(metaclass=Listed):
    """Values of one hyper-parameter, or of the batch size, spaced as the parameter is searched.

    Learning rates and batch sizes are spaced by equal factors, momenta and decays by equal factors of 1 - value, and powers
    evenly.

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
            raise Wrong(
                f"{self.name}: an axis goes from a low to a higher value, got {self.low!r} to {self.high!r}", "high"
            )
        if self.n != int(self.n) or not 2 <= self.n <= MOST_VALUES:
            raise Wrong(f"{self.name}: an axis has 2 to {MOST_VALUES} values, got {self.n!r}", "n")

    def __str__(self) -> str:
        return f"{self.name}={self.low!r}..{self.high!r}..{self.n}"

    def spaced(self, scale: str, argument: str | None = None) -> Array:
        """The values by equal factors ("log"), by equal factors of 1 - value ("memory"), or evenly.

        ``argument`` is the argument in which the user gave the axis, and which a refusal names.
        """
        low, high, n = self.low, self.high, int(self.n)
        if scale == "log":
            if low <= 0:
                raise Wrong(f"{self.name} must be positive on an axis by equal factors, got {low!r}", argument)
            return np.geomspace(low, high, n)
        if scale == "memory":
            if high >= 1:
                raise Wrong(f"{self.name} must be in [0, 1), got {high!r}", argument)
            return 1 - np.geomspace(1 - low, 1 - high, n)
        return np.linspace(low, high, n)


@dataclass(frozen=True, eq=False)
class Ticks:
    """The values of an axis for one optimizer, and how they are spaced."""

    name: str
    scale: str
    values: Array
    parameter: Parameter | None  # None for the batch size

    @classmethod
    def of(cls, axis: Axis, optimizer: Optimizer, argument: str) -> Ticks:
        """The ticks of an axis that a user gave as ``argument``; a wrong axis is refused by that name."""
        known = parameters(optimizer)
        if axis.name == "batch_size":
            return cls(axis.name, "log", axis.spaced("log", argument), None)
        if axis.name not in known:
            raise Wrong(
                f"{optimizer} has no parameter {axis.name!r}; an axis is batch_size or {', '.join(known)}", argument
            )
        kind = known[axis.name].kind
        values = axis.spaced(kind.scale, argument)
        values = np.unique(np.rint(values)) if kind.integer else values
        if not np.all(kind.valid(values)):
            raise Wrong(
                f"{axis.name} must be {kind.allowed}, and the axis has {values[~kind.valid(values)][0]:g}", argument
            )
        return cls(axis.name, kind.scale, values, known[axis.name])

    @property
    def structural(self) -> bool:
        """Whether its value changes the structure of a step, such as the period of Lookahead."""
        return self.parameter is not None and self.parameter.kind.structural

    def plain(self, value: float) -> int | float:
        """A value as the type that the optimizer takes."""
        return int(value) if self.parameter is not None and self.parameter.kind.integer else float(value)

    def between(self, a: Array, b: Array) -> Array:
        """The values halfway between a and b on the scale of the axis."""
        if self.scale == "log":
            return np.sqrt(a * b)
        return 1 - np.sqrt((1 - a) * (1 - b)) if self.scale == "memory" else (a + b) / 2

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "scale": self.scale, "values": numbers(self.values)}


@dataclass(frozen=True, eq=False, repr=False)
class PhaseMap(Tabular):
    """Answer of `phase_map`: ``steps[j, i]`` is at ``x.values[i]``, ``y.values[j]``, NaN where the target is not reached.

    ``boundary`` has the points (x, y) where stability ends, one for each value of the axis other than the one searched.
    """

    x: Ticks
    y: Ticks
    steps: Array
    outcomes: tuple[tuple[Outcome, ...], ...]
    boundary: Array
    optimizer: Optimizer
    target: float
    batch_size: float | None
    method: Method = "exact"

    def _brief(self) -> str:
        best, grid = self.best(), f"{len(self.x.values)} {self.x.name} x {len(self.y.values)} {self.y.name}"
        fewest = "no cell reaches it" if best is None else f"fewest steps {best['steps']:,} at {best['optimizer']}"
        return f"{self.optimizer}, {grid} to loss {self.target:g}: {fewest}"

    def best(self) -> dict[str, Any] | None:
        """The cell with the fewest steps."""
        if not np.isfinite(self.steps).any():
            return None
        j, i = np.unravel_index(np.nanargmin(self.steps), self.steps.shape)
        x, y = float(self.x.values[i]), float(self.y.values[j])
        given = {self.x.name: x, self.y.name: y}
        batch_size = given.pop("batch_size", self.batch_size)
        cell = {"x": number(x), "y": number(y), "steps": number(self.steps[j, i])}
        return {**cell, "optimizer": str(fill(self.optimizer, given)), "batch_size": number(batch_size)}

    def table(self) -> list[dict[str, Any]]:
        """One row for each cell."""
        return [
            {self.x.name: number(x), self.y.name: number(y), "steps": number(T), "outcome": outcome.name}
            for y, row, outcomes in zip(self.y.values, self.steps, self.outcomes, strict=True)
            for x, T, outcome in zip(self.x.values, row, outcomes, strict=True)
        ]

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Figure:
        """The map in colours with the edge of stability; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_map

        return plot_map(self, path, ax=ax)

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
            "method": self.method,
        }


def phase_map(
    problem: Problem, optimizer: Written, x: Axis, y: Axis, batch_size: float | None = None, *, target: float
) -> PhaseMap:
    """Steps to a target loss over a grid of two settings, and where stability ends.

    Parameters
    ----------
    optimizer : with every hyper-parameter set except those of the axes; its steps must be equal, or repeat in a cycle.
    x, y : hyper-parameters of the optimizer by name, or ``batch_size``.
    batch_size : positive; omitted if it is an axis.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> found = phase_map(Quadratic(Spectrum.power_law(1000)), HeavyBall(), Axis("lr", 0.01, 1, 3),
    ...                   Axis("momentum", 0, 0.9, 2), target=0.1, batch_size=1024)
    >>> found.steps.tolist()
    [[52814.0, 5286.0, 535.0], [5286.0, 533.0, 61.0]]
    """
    require_separable(problem, "phase_map")
    target, optimizer = check_goal(problem, target), as_optimizer(optimizer)
    if x.name == y.name:
        raise Wrong(f"the axes of a map must differ, got {x.name} twice", "y")
    if ("batch_size" in (x.name, y.name)) == (batch_size is not None):
        raise Wrong("phase_map needs batch_size= or an axis of that name, and not both", "batch_size")
    axes = Ticks.of(x, optimizer, "x"), Ticks.of(y, optimizer, "y")
    if left := [name for name in free_parameters(optimizer) if name not in (x.name, y.name)]:
        raise Wrong(
            f"phase_map needs {', '.join(left)} of {optimizer} set; only those of the axes may be free", "optimizer"
        )
    member = fill(optimizer, {axis.name: axis.plain(axis.values[0]) for axis in axes if axis.parameter})
    whole = member.has_mean_field and not member.depends_on_horizon
    if not whole or member.cycle == 0 or not member.steady or member.repeats_from:
        raise Wrong(
            f"phase_map needs an optimizer whose steps are alike or repeat, and those of {optimizer} do not",
            "optimizer",
        )
    size = None if batch_size is None else check_batch_size(batch_size)
    if not member.linear:
        steps, outcomes = followed_map(problem, optimizer, axes, target, size)
        return PhaseMap(*axes, steps, outcomes, np.zeros((0, 2)), optimizer, target, size, "mean field")
    require_consistent(member)
    nodes = problem.nodes.smooth if len(member.initial()) == 1 else problem.nodes.fine
    grid = _Grid(nodes.spectrum, optimizer, axes, target, size)
    steps, outcomes = grid.solve()
    return PhaseMap(*axes, steps, outcomes, grid.boundary(), optimizer, target, size)


def followed_map(
    problem: Problem, optimizer: Optimizer, axes: tuple[Ticks, Ticks], target: float, size: float | None
) -> tuple[Array, tuple[tuple[Outcome, ...], ...]]:
    """Steps and outcomes of the cells by mean field, interpolated between blocks of time, to about 1%."""
    where = problem.nodes.followed_quickly
    grid = _Grid(where.spectrum, optimizer, axes, target, size)
    steps, outcomes = np.zeros(grid.count), np.full(grid.count, Outcome.reached, dtype=object)
    if where.initial_loss > target:
        for rows, member in grid.passes():
            field = where.field(member, grid.batch_sizes[rows][:, None], detail=SCAN_DETAIL)
            course = follow_to(field, len(rows), where.initial_loss, target, MAX_STEPS, math.inf)
            steps[rows] = np.ceil(np.exp(course.log_hits))
            missed, lost = np.isnan(steps[rows]), ~np.isfinite(course.last)
            outcomes[rows[missed]] = Outcome.above_floor
            outcomes[rows[missed & lost]] = Outcome.diverged
    return steps.reshape(grid.shape), tuple(tuple(row) for row in outcomes.reshape(grid.shape))


class _Grid:
    """The cells of a map, and their computation in passes of cells whose steps have the same structure."""

    def __init__(
        self, spectrum: Spectrum, optimizer: Optimizer, axes: tuple[Ticks, Ticks], target: float, size: float | None
    ) -> None:
        self.spectrum, self.optimizer, self.axes, self.target = spectrum, optimizer, axes, target
        x, y = (axis.values for axis in axes)
        self.shape, self.count = (len(y), len(x)), len(x) * len(y)
        self.cells = {axes[0].name: np.tile(x, len(y)), axes[1].name: np.repeat(y, len(x))}
        self.batch_sizes = self.cells["batch_size"] if size is None else np.full(self.count, size)

    def solve(self) -> tuple[Array, tuple[tuple[Outcome, ...], ...]]:
        """Steps and outcome of every cell."""
        steps = np.zeros(self.count)
        outcomes = np.full(self.count, Outcome.reached, dtype=object)
        if self.spectrum.initial_loss > self.target:
            with np.errstate(all="ignore"):
                for rows, member in self.passes():
                    steps[rows], hopeless = _Pass(member, self.spectrum, self.target, self.batch_sizes[rows]).go()
                    missed, stable = np.isnan(steps[rows]), self._stable(member, len(rows))
                    outcomes[rows[missed]] = Outcome.out_of_steps
                    outcomes[rows[missed & hopeless]] = Outcome.above_floor
                    outcomes[rows[missed & ~stable]] = Outcome.diverged
        return steps.reshape(self.shape), tuple(tuple(row) for row in outcomes.reshape(self.shape))

    def passes(self) -> Iterator[tuple[Array, Optimizer]]:
        """Groups of cells for one pass, sorted by learning rate, each with the optimizer that has their settings as arrays."""
        order = np.argsort(self.cells.get("lr", np.zeros(self.count)), kind="stable")
        structure = [self.cells[axis.name][order] for axis in self.axes if axis.structural]
        numbers = len(self._filled(order[:1]).initial()) * len(self.spectrum)
        for rows in equal_rows(
            np.array(structure).reshape(-1, self.count).T, max(1, MAP_SETTINGS.pass_size // numbers)
        ):
            yield order[rows], self._filled(order[rows])

    def _filled(self, rows: Array) -> Optimizer:
        """The optimizer with the settings of these cells as arrays; structural parameters are equal, and plain numbers."""
        cells = {axis: self.cells[axis.name][rows] for axis in self.axes if axis.parameter}
        values = {a.name: a.plain(at[0]) if a.structural else at[:, None] for a, at in cells.items()}
        return fill(self.optimizer, values)

    def boundary(self) -> Array:
        """Where stability ends along one axis (the learning rate, if it is an axis), for each value of the other axis."""
        x, y = self.axes
        along, other = (y, x) if y.name == "lr" else (x, y)
        if along.parameter is None or x.structural or y.structural:
            return np.zeros((0, 2))

        def stable(at: Array) -> Array:
            values = {s.name: v[:, None] for s, v in ((along, at), (other, other.values)) if s.parameter}
            return self._stable(fill(self.optimizer, values), len(at))

        low, high = (np.full(len(other.values), end) for end in (along.values[0], along.values[-1]))
        first = stable(low)
        crosses = first != stable(high)
        for _ in range(MAP_SETTINGS.bisections if crosses.any() else 0):
            middle = along.between(low, high)
            same = stable(middle) == first
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        at, across = low[crosses], other.values[crosses]
        return np.stack([across, at] if along is y else [at, across], axis=1)

    def _stable(self, member: Optimizer, count: int) -> Array:
        """Whether each of ``count`` settings is stable."""
        h = self.spectrum.h
        # Equal steps lose stability at an end of the spectrum. A cycle can resonate with any mode.
        modes = h if member.cycle > 1 else np.array([h.min(), h.max()])
        with np.errstate(all="ignore"):
            return np.broadcast_to(Trajectory(member, modes).stable(), (count,))


class _Pass:
    """Cells whose powers are computed together. Times are in cycles; most optimizers have cycles of one step."""

    def __init__(self, member: Optimizer, spectrum: Spectrum, target: float, batch_sizes: Array) -> None:
        self.shape = len(batch_sizes), len(spectrum)
        # Each cell has a row of modes, also where no setting of the optimizer differs between cells.
        path = Trajectory(member, np.broadcast_to(spectrum.h, self.shape))
        self.target, self.batch_sizes = target, batch_sizes
        self.ws, self.wn = spectrum.signal_mass, spectrum.noise_mass
        self.cycle, self.limit = path.period, MAX_STEPS // path.period
        self.start, self.powers, self.row = path.start(), Powers(path.stationary()), path.row(path.period)

    def go(self) -> tuple[Array, Array]:
        """Steps, NaN where the target is not reached; and which cells never reach it, because noise alone is above it."""
        before, t, gap, hit, hopeless = self._up()
        for level in range(int(gap[hit].max(initial=0)) - 1, -1, -1):
            ahead = self.powers[level] @ before
            go_on = hit & (gap > level) & ~(self._losses(ahead)[0] <= self.target)
            mask = np.repeat(go_on, self.shape[1])
            A, Q = np.where(mask, ahead.A, before.A), np.where(mask, ahead.Q, before.Q)
            before = MomentMap(A, np.where(mask, ahead.drift, before.drift), Q)
            t = t + np.where(go_on, 2**level, 0)
        return np.where(hit, (t + 1.0) * self.cycle, np.nan), hopeless

    def _up(self) -> tuple[MomentMap, Array, Array, Array, Array]:
        """Observe until every cell is decided. Returns the state and time before each hit, the log2 of the gap to the hit,
        which cells are hit, and which never will be.
        """
        cells, state, now = self.shape[0], self.start, 0
        X, N = state.A.copy(), state.Q.copy()
        t, gap = np.zeros((2, cells), dtype=np.int64)
        hit, hopeless = np.zeros((2, cells), dtype=bool)
        while now < self.limit and not (hit | hopeless).all():
            bits = MAP_SETTINGS.dense_bits if now < MAP_SETTINGS.dense_steps else MAP_SETTINGS.sparse_bits
            level = max(0, now.bit_length() - bits)
            ahead = self.powers[level] @ state
            loss, noise = self._losses(ahead)
            new = ~hit & ~hopeless & (loss <= self.target)
            if new.any():
                mask = np.repeat(new, self.shape[1])
                X[..., mask], N[..., mask] = state.A[..., mask], state.Q[..., mask]
                t[new], gap[new] = now, level
            hit |= new
            hopeless |= ~hit & ~((noise <= self.target) & (loss < math.inf))
            state, now = ahead, now + 2**level
        return MomentMap(X, MomentMap.matrix(X).drift, N), t, gap, hit, hopeless

    def _losses(self, state: MomentMap) -> tuple[Array, Array]:
        """Loss of each cell, and the part of it that is noise."""
        signal, noise = (moments.reshape(self.shape) for moments in state.seen(self.row))
        added = (noise @ self.wn) / self.batch_sizes
        return signal @ self.ws + added, added
