"""Hyper-parameters: which values they take, in which coordinate they are searched, and `free`, their default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..types import Array


class Free:
    """The default of hyper-parameters that are usually tuned; `tune` and `sweep` fill it in. The text "free" means the same."""

    def __repr__(self) -> str:
        return "free"

    def __reduce__(self) -> str:
        return "free"  # Copies and pickles refer to this name, so that there is only one instance.


free: Final = Free()

if TYPE_CHECKING:

    class Number:
        """The type of a hyper-parameter: it is set to a number, to an array of settings that broadcasts against h, or to `free`.

        For type checkers it reads as a number. Only searches use arrays and `free`.
        """

        def __get__(self, optimizer: object, owner: type | None = None) -> float: ...
        def __set__(self, optimizer: object, value: float | Array | Free | Literal["free"]) -> None: ...
else:
    Number = float


@dataclass(frozen=True)
class Kind:
    """Which values a hyper-parameter takes, and the coordinate u in which it is searched."""

    allowed: str  # the allowed values, as the error message names them
    valid: Any  # value -> bool, elementwise
    low: float  # lower end of the search box, in the coordinate u
    high: float  # upper end of the search box
    value: Any  # u -> value
    coordinate: Any  # value -> u
    integer: bool = False
    structural: bool = False  # The value decides which steps are identical, so settings cannot share a pass.
    likely: tuple[float, float] | None = None  # the part of the box in which a random search begins; None for all of it
    scale: str = "log"  # the scale on which values are shown: "log", "memory" for log(1 - value), or "linear"


def rate() -> Any:
    """A learning rate: positive, searched relative to the edge of stability (`Optimizer.edge`).

    With v = lr / edge the coordinate is u = log2(v / (1 - v)): log2 of the rate far below the edge, and minus log2 of the
    distance to the edge close to it, where the best rates for large batches are. Values of u from 16 to 22 are rates from
    the edge to 64 times the edge.
    """
    kind = Kind("positive", lambda v: v > 0, -44.0, 22.0, _from_edge, _to_edge, likely=(-12.0, 8.0))
    return _parameter(kind)


def stride(high: float = 4.0) -> Any:
    """A learning rate in units of the weights, as that of Adam: positive, searched in log2 up to 2^high.

    A step moves a weight by about this much, whatever the curvature. So there is no edge of stability to measure the
    rate by, and the edge of such an optimizer is 1.
    """
    kind = Kind("positive", lambda v: v > 0, high - 32.0, high, np.exp2, np.log2, likely=(high - 16.0, high - 2.0))
    return _parameter(kind)


def decay(default: float | Free = free) -> Any:
    """A momentum or a decay of an average in [0, 1), searched in log2 of its memory 1 / (1 - value)."""
    valid, scale = lambda v: (v >= 0) & (v < 1), "memory"
    kind = Kind("in [0, 1)", valid, 0.0, 27.0, _from_memory, _to_memory, likely=(0.0, 8.0), scale=scale)
    return _parameter(kind, default)


def positive(default: float | Free = free, low: float = -40.0, high: float = 20.0, zero: bool = False) -> Any:
    """A positive number (or zero, if ``zero`` is set), searched in log2 between 2^low and 2^high."""
    allowed, least = ("zero or positive", -math.inf) if zero else ("positive", 0.0)
    kind = Kind(allowed, lambda v: (v > least) & (v >= 0), low, high, np.exp2, np.log2)
    return _parameter(kind, default)


def unit(low: float = 0.0, high: float = 1.0) -> Any:
    """A number between 0 and 1, searched in eighths: one eighth matters about as much as doubling a learning rate."""
    valid = lambda v: (v >= 0) & (v <= 1)  # noqa: E731
    return _parameter(Kind("in [0, 1]", valid, 8 * low, 8 * high, lambda u: u / 8, lambda v: 8 * v, scale="linear"))


def whole(default: float | Free = free) -> Any:
    """A whole number of at least 1, searched on a log2 scale."""
    valid, value = lambda v: (v == np.rint(v)) & (v >= 1), lambda u: round(2.0 ** float(u))
    kind = Kind("a whole number of at least 1", valid, 0.0, 8.0, value, np.log2, integer=True, structural=True)
    return _parameter(kind, default)


def beginning() -> Any:
    """Where an average begins: a fraction of the run, or a whole number of steps.

    It is searched in eighths and rounded to 1/128, because settings with the same beginning share a pass, and the loss
    hardly depends on so small a difference.
    """
    valid = lambda v: (v >= 0) & ((v < 1) | (v == np.rint(v)))  # noqa: E731
    allowed = "a fraction in [0, 1) of the run, or a whole number of steps"
    value, coordinate = lambda u: round(16 * float(u)) / 128, lambda v: 8 * float(v)
    return _parameter(Kind(allowed, valid, 0.0, 8 * 0.99, value, coordinate, structural=True, scale="linear"))


def _from_edge(u: Array) -> Array:
    return np.where(u <= 16, 1 / (1 + np.exp2(-np.minimum(u, 16.0))), np.exp2(np.maximum(u, 16.0) - 16))


def _to_edge(v: Array) -> Array:
    stable = np.clip(v, 1e-300, 1 - 2.0**-16)
    return np.where(v < 1, np.log2(stable / (1 - stable)), 16 + np.log2(np.maximum(v, 1.0)))


def _from_memory(u: Array) -> Array:
    return -np.expm1(-np.asarray(u) * math.log(2.0))


def _to_memory(value: Array) -> Array:
    return -np.log1p(-np.asarray(value)) / math.log(2.0)


def _parameter(kind: Kind, default: float | Free = free) -> Any:
    return field(default=default, metadata={"kind": kind})
