"""What an optimizer is: a small linear system, its start, its read-out; and hyper-parameters that may be left free.

One step on one mode of curvature h is ``x <- A x + b eps``, x a handful of slots (theta, velocity, average, ...). An
optimizer states it as a change, ``x <- x + G x + b eps`` with ``A = I + G``, because ``1 - lr h`` has forgotten lr h
once that falls below 1e-16. Slots are in the literature's own units; the engine balances them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

Number = Any
"""A hyper-parameter: a number, an array of settings that broadcasts against h, or `free`."""

System = tuple[Sequence[Sequence[Any]], Sequence[Any]]


class Free:
    """The default of every hyper-parameter: to be filled in by `tune` and `sweep`."""

    def __repr__(self) -> str:
        return "free"

    def __copy__(self) -> Free:
        return self

    def __deepcopy__(self, memo: Any) -> Free:
        return self

    def __reduce__(self) -> str:
        return "free"


free: Final = Free()


@dataclass(frozen=True)
class Kind:
    """What values a hyper-parameter takes, and the coordinate in which it is searched."""

    allowed: str  # as the error message says it
    valid: Any  # value -> bool, elementwise
    low: float  # the search box, in the coordinate u
    high: float
    value: Any  # u -> value
    coordinate: Any  # value -> u
    integer: bool = False
    structural: bool = False  # decides which steps are alike, so settings cannot share a pass


def rate() -> Any:
    """A learning rate: positive, searched relative to the edge of stability (`Optimizer.edge`).

    With v = lr / edge the coordinate is log2(v / (1 - v)), log2 of the rate far below the edge and of the distance to
    it close by, where the best rates for large batches lie. Beyond u = 16 it goes on above the edge, to 64 times.
    """
    return _parameter(Kind("positive", lambda v: v > 0, -44.0, 22.0, _from_edge, _to_edge))


def decay() -> Any:
    """A momentum or an averaging decay in [0, 1), searched in log2 of its memory 1 / (1 - value)."""
    return _parameter(Kind("in [0, 1)", lambda v: (v >= 0) & (v < 1), 0.0, 27.0, _from_memory, _to_memory))


def unit(low: float = 0.0, high: float = 1.0) -> Any:
    """A number between 0 and 1, searched in eighths, so that a unit matters as much as a doubling of a rate."""
    valid = lambda v: (v >= 0) & (v <= 1)  # noqa: E731
    return _parameter(Kind("in [0, 1]", valid, 8 * low, 8 * high, lambda u: u / 8, lambda v: 8 * v))


def whole() -> Any:
    """A whole number of at least 1, searched on a log2 scale."""

    def valid(v: Any) -> Any:
        return (v == np.rint(v)) & (v >= 1)

    def value(u: Any) -> int:
        return round(2.0 ** float(u))

    return _parameter(
        Kind("a whole number of at least 1", valid, 0.0, 8.0, value, np.log2, integer=True, structural=True)
    )


def beginning() -> Any:
    """Where an average begins: a fraction of the run, or a whole number of steps.

    It is searched in eighths and rounded to 1/128: settings that begin together share a pass, and the loss is flat there.
    """

    def valid(v: Any) -> Any:
        return (v >= 0) & ((v < 1) | (v == np.rint(v)))

    allowed = "a fraction in [0, 1) of the run, or a whole number of steps"
    return _parameter(
        Kind(
            allowed, valid, 0.0, 8 * 0.99, lambda u: round(16 * float(u)) / 128, lambda v: 8 * float(v), structural=True
        )
    )


def _from_edge(u: Any) -> Any:
    return np.where(u <= 16, 1 / (1 + np.exp2(-np.minimum(u, 16.0))), np.exp2(np.maximum(u, 16.0) - 16))


def _to_edge(v: Any) -> Any:
    stable = np.clip(v, 1e-300, 1 - 2.0**-16)
    return np.where(v < 1, np.log2(stable / (1 - stable)), 16 + np.log2(np.maximum(v, 1.0)))


def _from_memory(u: Any) -> Any:
    return -np.expm1(-np.asarray(u) * math.log(2.0))


def _to_memory(value: Any) -> Any:
    return -np.log1p(-np.asarray(value)) / math.log(2.0)


def _parameter(kind: Kind, default: Any = free) -> Any:
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True)
class Optimizer(ABC):
    """An optimizer on one mode: ``x <- x + G x + b eps``, loss read from ``r . x``.

    A subclass is a frozen dataclass whose hyper-parameters are fields declared with `rate`, `decay` or `unit`, with
    three methods. `docs/extend.md` writes one that is not in the package.
    """

    def __post_init__(self) -> None:
        for f in fields(self):
            kind, value = f.metadata.get("kind"), getattr(self, f.name)
            if kind is None or value is free:
                continue
            numbers = isinstance(value, (int, float, np.number, np.ndarray)) and not isinstance(value, bool)
            if not numbers or not np.all(np.isfinite(value) & kind.valid(value)):
                raise ValueError(f"{type(self).__name__}: {f.name} must be {kind.allowed}, got {value!r}")

    @abstractmethod
    def system(self, h: Any, t: int) -> System:
        """G as rows and b as a column for step t (counted from 0), entries broadcasting with the curvatures h."""

    @abstractmethod
    def initial(self) -> Sequence[float]:
        """The slots at step 0 in units of theta_0: 1 for weights, 0 for a velocity."""

    @abstractmethod
    def readout(self, t: int) -> Sequence[Any]:
        """The weights r of the slots in the parameters whose loss is reported after t steps."""

    def same_until(self, t: int) -> float:
        """The first step after t whose system differs from step t's; infinity if none does."""
        return math.inf

    @property
    def cycle(self) -> int:
        """Steps after which the systems repeat, 0 if they never do."""
        return 1

    @property
    def settled(self) -> int:
        """The step from which the systems repeat."""
        return 0

    @property
    def steady(self) -> bool:
        """Whether the read-out stays the same."""
        return True

    @property
    def averages(self) -> bool:
        """Whether the read-out averages over an ever longer time, so that its noise goes to zero."""
        return False

    def pace(self, t: Any) -> Any:
        """For a system that differs at every step: the scalar of t in which G and b are affine, if there is one."""
        return None

    def at_horizon(self, t: int) -> Optimizer:
        """The optimizer for a run of t steps, where it depends on that."""
        return self

    def edge(self, h: Any) -> Any:
        """The learning rate at which a mode of curvature h loses stability, as far as known: a coordinate for searches."""
        return 2 / h

    @property
    def effective_lr(self) -> Any:
        """The learning rate of plain SGD that moves as far per step in the long run."""
        return parameters(self)["lr"].value if "lr" in parameters(self) else math.nan

    def __str__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return f"{type(self).__name__}({', '.join(_shown(n, v) for n, v in shown if v is not free)})"


@dataclass(frozen=True)
class Wrapper(Optimizer):
    """An optimizer that holds another one as ``inner``, whose slots come first."""

    inner: Optimizer

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Optimizer):
            raise TypeError(f"{type(self).__name__}: inner must be an optimizer, got {self.inner!r}")
        super().__post_init__()

    def same_until(self, t: int) -> float:
        return self.inner.same_until(t)

    @property
    def cycle(self) -> int:
        return self.inner.cycle

    @property
    def settled(self) -> int:
        return self.inner.settled

    @property
    def steady(self) -> bool:
        return self.inner.steady

    @property
    def averages(self) -> bool:
        return self.inner.averages

    def at_horizon(self, t: int) -> Optimizer:
        return _with(self, inner=self.inner.at_horizon(t))

    def edge(self, h: Any) -> Any:
        return self.inner.edge(h)

    @property
    def effective_lr(self) -> Any:
        return self.inner.effective_lr


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of an optimizer or of one it wraps."""

    name: str
    path: tuple[str, ...]
    kind: Kind
    value: Any


def parameters(optimizer: Optimizer) -> dict[str, Parameter]:
    """Every hyper-parameter by name, innermost first; a name used twice is told apart by its path (``inner.decay``).

    >>> from nqm import EMA, HeavyBall
    >>> list(parameters(EMA(HeavyBall(momentum=0.9))))
    ['lr', 'momentum', 'decay']
    """
    found = list(_walk(optimizer, ()))
    names = [path[-1] for path, _, _ in found]
    result = {}
    for path, kind, value in found:
        name = path[-1] if names.count(path[-1]) == 1 else ".".join(path)
        result[name] = Parameter(name, path, kind, value)
    return result


def free_parameters(optimizer: Optimizer) -> dict[str, Parameter]:
    """The hyper-parameters still to be filled in."""
    return {name: p for name, p in parameters(optimizer).items() if p.value is free}


def fill(optimizer: Optimizer, values: Mapping[str, Any]) -> Optimizer:
    """The optimizer with the named hyper-parameters set, unchecked: the values may be arrays of settings."""
    known = parameters(optimizer)
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{optimizer} has no parameter {name!r}; it has {', '.join(known)}")
        optimizer = assign(optimizer, known[name].path, value)
    return optimizer


def scaled(optimizer: Optimizer, lr: Any = 1.0, momentum: Any = 1.0) -> Optimizer:
    """The optimizer with its learning rates and momenta multiplied: what a schedule does to it."""
    for name, factor in (("lr", lr), ("momentum", momentum)):
        for p in parameters(optimizer).values():
            if p.path[-1] == name and not (np.isscalar(factor) and factor == 1.0):
                optimizer = assign(optimizer, p.path, p.value * factor)
    return optimizer


def require_set(optimizer: Optimizer, verb: str) -> None:
    """Refuse an optimizer with free parameters, by name."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{verb} needs an optimizer such as SGD(0.1), got {optimizer!r}")
    if left := free_parameters(optimizer):
        raise ValueError(
            f"{verb} needs every hyper-parameter set, but {', '.join(left)} of {optimizer} is free; set it or use tune"
        )


def _walk(optimizer: Optimizer, prefix: tuple[str, ...]) -> Any:
    for f in fields(optimizer):
        value = getattr(optimizer, f.name)
        if isinstance(value, Optimizer):
            yield from _walk(value, (*prefix, f.name))
    for f in fields(optimizer):
        if "kind" in f.metadata:
            yield (*prefix, f.name), f.metadata["kind"], getattr(optimizer, f.name)


def assign(optimizer: Optimizer, path: tuple[str, ...], value: Any) -> Optimizer:
    """The optimizer with the hyper-parameter at a path set, unchecked."""
    name, *rest = path
    if rest:
        value = assign(getattr(optimizer, name), tuple(rest), value)
    return _with(optimizer, **{name: value})


def _with(optimizer: Optimizer, **changes: Any) -> Any:
    result = object.__new__(type(optimizer))
    vars(result).update(vars(optimizer), **changes)
    return result


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Optimizer):
        return str(value)
    close = isinstance(value, float) and 0.9999 < value < 1  # six digits would leave too few of 1 - value, or none
    return f"{name}={value:.{12 if close else 6}g}" if isinstance(value, float) else f"{name}={value}"
