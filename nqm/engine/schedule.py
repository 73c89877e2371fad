"""Schedules as data: multipliers on learning rate, momentum and batch size that are constant on pieces.

``warmup(100) + cosine(900)`` is a schedule of the learning rate, ``step(900, 2.0, at=[300, 600]).on("batch_size")``
doubles the batch size twice, and ``a & b`` applies both. After its last piece a schedule keeps its last multipliers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..types import Array, Wrong
from .readable import Readable

Target = Literal["lr", "momentum", "batch_size"]

SCHEDULED: tuple[Target, ...] = ("lr", "momentum", "batch_size")  # what a schedule multiplies
MAX_PIECES = 10**7  # most pieces of a schedule that changes at every step
MAX_SCHEDULE_STEPS = 10**12  # most steps of a schedule; a float holds every whole number up to it exactly


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Readable):
    """Multipliers that are constant on pieces; piece i lasts ``lengths[i]`` steps.

    >>> (warmup(2) + constant(3)).multipliers("lr", 6).tolist()
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    lengths: Any
    lr: Any = 1.0
    momentum: Any = 1.0
    batch_size: Any = 1.0
    ends: list[int] = field(init=False)  # the step at which each piece ends

    def __post_init__(self) -> None:
        lengths = np.atleast_1d(np.asarray(self.lengths))
        known = lengths.size > 0 and lengths.dtype.kind in "iuf" and np.all(np.abs(lengths) < 2**62)
        whole = known and np.all(lengths == np.rint(lengths)) and np.all(lengths >= 1)
        if not whole or lengths.sum() > MAX_SCHEDULE_STEPS:
            most = f"at least 1, and {MAX_SCHEDULE_STEPS:,} together"
            sentence = f"a schedule's pieces must each last a whole number of steps, {most}, got {self.lengths!r:.80}"
            raise Wrong(sentence, argument="lengths")
        values = {}
        for name in SCHEDULED:
            value = np.asarray(getattr(self, name), dtype=float)
            if value.ndim > 1 or value.size not in (1, lengths.size):
                raise Wrong(f"schedule: {name} has {value.size} values for {lengths.size} pieces", argument=name)
            if not np.all(np.isfinite(value)) or np.any(value < 0) or (name == "batch_size" and np.any(value == 0)):
                sentence = f"schedule: {name} multipliers must be finite and not negative, got {value.ravel()[:5]}..."
                raise Wrong(sentence, argument=name)
            values[name] = np.broadcast_to(value.ravel(), lengths.shape)
        # Neighbouring pieces with the same multipliers are joined, so that their steps are one power.
        table = np.stack(list(values.values()))
        keep = np.append(True, np.any(table[:, 1:] != table[:, :-1], axis=0))
        ends = np.cumsum(lengths.astype(np.int64))
        object.__setattr__(self, "ends", ends[np.append(np.flatnonzero(keep)[1:] - 1, lengths.size - 1)].tolist())
        object.__setattr__(self, "lengths", np.diff(self.ends, prepend=0))
        for name, value in values.items():
            object.__setattr__(self, name, value[keep])

    def _brief(self) -> str:
        count = len(self.ends)
        names = [n for n in SCHEDULED if np.any(getattr(self, n) != 1)] or ["lr"]
        ends = [(name, getattr(self, name)[0], getattr(self, name)[-1]) for name in names]
        parts = [f"{name} x {a:.4g}" + (f" -> {b:.4g}" if count > 1 else "") for name, a, b in ends]
        return f"{self.steps:,} steps in {count:,} {'piece' if count == 1 else 'pieces'}: {', '.join(parts)}"

    @property
    def steps(self) -> int:
        """The number of steps of all pieces together."""
        return int(self.ends[-1])

    @property
    def repeats_from(self) -> int:
        """The first step of the last piece, from which on nothing changes."""
        return int(self.ends[-2]) if len(self.ends) > 1 else 0

    def piece(self, t: int) -> int:
        """The index of the piece that step t belongs to."""
        return min(bisect_right(self.ends, t), len(self.ends) - 1)

    def same_until(self, t: int) -> float:
        """The first step after t whose multipliers differ from those of step t; infinity if there is none."""
        return self.ends[self.piece(t)] if t < self.repeats_from else math.inf

    def at(self, t: int) -> tuple[float, float, float]:
        """The multipliers (lr, momentum, batch_size) of step t."""
        i = self.piece(t)
        return float(self.lr[i]), float(self.momentum[i]), float(self.batch_size[i])

    def multipliers(self, target: Target, steps: int, first: int = 0) -> Array:
        """The multiplier of each of the steps first, first + 1, ..."""
        return self._at(target, np.arange(first, first + steps))

    def _at(self, target: Target, steps: Array) -> Array:
        return getattr(self, target)[np.minimum(np.searchsorted(self.ends, steps, "right"), len(self.ends) - 1)]

    def on(self, target: Target) -> Schedule:
        """The same multipliers, on momentum or on batch size instead of on the learning rate."""
        if target not in SCHEDULED:
            raise Wrong(f"a schedule acts on lr, momentum or batch_size, not on {target!r}", argument="target")
        return Schedule(self.lengths, **{target: self.lr})

    def __add__(self, after: Schedule) -> Schedule:
        join = {n: np.append(getattr(self, n), getattr(after, n)) for n in SCHEDULED}
        return Schedule(np.append(self.lengths, after.lengths), **join)

    def __and__(self, other: Schedule) -> Schedule:
        ends = np.union1d(self.ends, other.ends)
        first = np.append(0, ends[:-1])
        return Schedule(np.diff(ends, prepend=0), **{n: self._at(n, first) * other._at(n, first) for n in SCHEDULED})

    def to_dict(self) -> dict[str, Any]:
        """The lengths of the pieces and their multipliers, as lists."""
        return {n: getattr(self, n).tolist() for n in ("lengths", *SCHEDULED)}


def constant(steps: int, value: float = 1.0) -> Schedule:
    """The same multiplier at every step."""
    return Schedule([_steps("constant", steps)], value)


def step(steps: int, factor: float, at: Sequence[float]) -> Schedule:
    """Multiply by ``factor`` at each of the steps ``at``."""
    ends = [int(a) if math.isfinite(a) else 0 for a in at]
    if sorted(set(ends)) != ends or not ends or ends[0] < 1 or ends[-1] >= _steps("step", steps):
        raise Wrong(f"step: at must rise within 1 .. {steps - 1}, got {list(at)}", argument="at")
    return Schedule(np.diff([0, *ends, steps]), factor ** np.arange(len(ends) + 1.0))


def linear(steps: int, start: float = 1.0, end: float = 0.0) -> Schedule:
    """A straight line from ``start`` at the first step to ``end``, which the step after the last one would have."""
    u = np.arange(_steps("linear", steps)) / steps
    return _each(start + (end - start) * u)


def cosine(steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine from 1 at the first step to ``end`` after the last (Loshchilov and Hutter, 2017)."""
    u = np.arange(_steps("cosine", steps)) / steps
    return _each(end + (1 - end) * (1 + np.cos(np.pi * u)) / 2)


def exponential(steps: int, end: float = 0.01) -> Schedule:
    """The same factor between any two steps, from 1 at the first step to ``end`` after the last."""
    if not end > 0:
        raise Wrong(f"exponential: end must be positive, got {end}", argument="end")
    return _each(end ** (np.arange(_steps("exponential", steps)) / steps))


def warmup(steps: int, start: float = 0.0) -> Schedule:
    """A straight line from ``start`` before the first step to 1 at the last step."""
    u = np.arange(1, _steps("warmup", steps) + 1) / steps
    return _each(start + (1 - start) * u)


def wsd(steps: int, warmup_steps: int, decay_steps: int, end: float = 0.0) -> Schedule:
    """Warm-up, stable, decay: a linear warm-up, a multiplier of 1 in the middle, and a linear decay to ``end``."""
    stable = _steps("wsd", steps) - warmup_steps - decay_steps
    if min(stable, warmup_steps, decay_steps) < 0:
        raise Wrong(f"wsd: warm-up {warmup_steps} and decay {decay_steps} do not fit into {steps} steps", "steps")
    parts = [warmup(warmup_steps)] * (warmup_steps > 0) + [constant(stable)] * (stable > 0)
    parts += [linear(decay_steps, 1.0, end)] * (decay_steps > 0)
    return sum(parts[1:], parts[0])


AnySchedule = Schedule | Callable[[int], float] | str | None
"""What may be given as a schedule: a `Schedule`, a function of the step, the text of a schedule, or None for none."""


def as_schedule(schedule: AnySchedule, steps: int, argument: str = "schedule") -> Schedule | None:
    """The given schedule, the one that a text writes, or a function of the step converted to a schedule of ``steps`` pieces.

    Text such as ``"warmup(100) + cosine(900)"`` is parsed and never evaluated.
    """
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        from ..text.objects import parse_schedule

        try:
            return parse_schedule(schedule)
        except Wrong as error:
            raise Wrong(str(error), argument) from None
    if not callable(schedule):
        raise Wrong(f"schedule must be a Schedule or a function of the step, got {schedule!r}", argument=argument)
    if steps > MAX_PIECES:
        sentence = f"a schedule that is a function is followed for at most {MAX_PIECES:,} steps, got {steps:,}"
        raise Wrong(f"{sentence}; give a Schedule of fewer pieces", argument="schedule")
    return _each(np.array([float(schedule(t)) for t in range(max(steps, 1))]))


def _each(values: Array) -> Schedule:
    return Schedule(np.ones(len(values), dtype=np.int64), values)


def _steps(name: str, steps: Any) -> int:
    if isinstance(steps, (bool, str)) or not 1 <= steps <= MAX_SCHEDULE_STEPS or steps != int(steps):
        raise Wrong(f"{name}: steps must be a whole number from 1 to {MAX_SCHEDULE_STEPS:,}, got {steps!r}", "steps")
    if name not in ("constant", "step", "wsd") and steps > MAX_PIECES:
        raise Wrong(f"{name}: it changes at every step, so it has at most {MAX_PIECES:,} steps, got {steps:,}", "steps")
    return int(steps)


__all__ = ["Schedule", "constant", "cosine", "exponential", "linear", "step", "warmup", "wsd"]
