"""Search spaces: ranges of settings on the scale on which they matter, and quasi-random points in them.

A learning rate is searched in its logarithm, a momentum or a decay m in the logarithm of 1 - m, its inverse memory.
A *box* is a range for each setting that is searched. Where the best trial lies at an end of its range, the range may be
widened; points are then drawn in what was added.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice

from ..engine.readable import Listed
from ..nets.training.foreign import FOREIGN_MEMORIES
from ..optimizers import Optimizer
from ..optimizers.base import Wrapper, parameters
from ..sampling.sobol import sobol
from ..text.objects import KNOWN_OPTIMIZERS
from ..types import Wrong

SCALES = ("log", "1-x", "linear")
EDGE = 0.05  # A best setting this close to an end of its range, as a share of it, is at the edge; by chance 10% are.
WIDER = 4.0  # A logarithmic range that is widened grows by this factor; a linear one grows by its width.

Box = dict[str, "Space"]
Setting = float | str
"""The value of a setting: a number, true or false, or text."""


@dataclass(frozen=True)
class Space(metaclass=Listed):
    """A range of one setting and its scale: ``log``, ``1-x`` (the logarithm of 1 - x) or ``linear``.

    >>> Space(0.01, 1, "log").at(0.5), Space(0.9, 0.999, "1-x").at(0.5)
    (0.1, 0.99)
    >>> Space(0.01, 1, "log").edge(0.95), Space(0.01, 1, "log").widened(["high"])
    ('high', Space(low=0.01, high=4.0, scale='log'))
    """

    low: float
    high: float
    scale: str = "log"

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise Wrong(f"scale must be one of {', '.join(SCALES)}, got {self.scale!r:.60}", argument="scale")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            both = f"low = {self.low:g} and high = {self.high:g}"
            raise Wrong(f"low must be below high and both finite, got {both}", argument="low")
        if self.scale == "log" and self.low <= 0:
            raise Wrong(f"low must be above 0 on a log scale, got {self.low:g}", argument="low")
        if self.scale == "1-x" and not (self.low >= 0 and self.high < 1):
            sentence = f"on a 1-x scale low must be 0 or more and high below 1, got {self.low:g} and {self.high:g}"
            raise Wrong(sentence, argument="low" if self.low < 0 else "high")

    def at(self, u: float) -> float:
        """The setting at a fraction of the range, to six digits, so that every machine's arithmetic gives the same trial."""
        y = self._to_scale(self.low) + self.width * u
        if self.scale == "1-x":
            return float(f"{1 - _six(math.exp(-y)):.15g}")
        return _six(math.exp(y) if self.scale == "log" else y)

    def where(self, value: float) -> float:
        """The fraction of the range at which a setting lies: the inverse of `at`."""
        return (self._to_scale(value) - self._to_scale(self.low)) / self.width

    def _to_scale(self, x: float) -> float:
        return {"log": lambda: math.log(x), "1-x": lambda: -math.log1p(-x), "linear": lambda: x}[self.scale]()

    @property
    def width(self) -> float:
        """Length of the range on its scale."""
        return self._to_scale(self.high) - self._to_scale(self.low)

    def edge(self, value: float, margin: float = EDGE) -> str | None:
        """``low`` or ``high`` if a setting lies at an end beyond which the range can be widened."""
        u = self.where(value)
        if u <= margin and self._beyond("low") < self.low:
            return "low"
        return "high" if u >= 1 - margin and self._beyond("high") > self.high else None

    def widened(self, ends: Collection[str]) -> Space:
        """The range, extended at some ends as far as the scale allows."""
        low, high = (self._beyond(e) if e in ends else getattr(self, e) for e in ("low", "high"))
        return Space(low, high, self.scale)

    def _beyond(self, end: str) -> float:
        if self.scale == "log":
            return self.low / WIDER if end == "low" else self.high * WIDER
        if self.scale == "1-x":
            return max(0.0, 1 - WIDER * (1 - self.low)) if end == "low" else 1 - (1 - self.high) / WIDER
        width = self.high - self.low
        if end == "high":
            share = self.low >= 0 and self.high < 1  # A momentum or a share stays below 1.
            return min(self.high + width, 1 - (1 - self.high) / WIDER) if share else self.high + width
        return max(0.0, self.low - width) if self.low >= 0 else self.low - width  # A positive setting stays positive.

    def to_dict(self) -> dict[str, float | str]:
        return {"low": float(self.low), "high": float(self.high), "scale": self.scale}


def optimizer_of(name: str) -> Optimizer | None:
    """The package's optimizer of this name, with every setting free; None if only PyTorch or a user's worker has it."""
    kind = KNOWN_OPTIMIZERS.get(name)
    return None if kind is None or issubclass(kind, Wrapper) else kind()


@cache
def memories() -> frozenset[str]:
    """Names of momenta and decays, by which settings of PyTorch's optimizers and of a user's worker are known."""
    settings = [f for kind in KNOWN_OPTIMIZERS.values() for f in fields(kind) if "kind" in f.metadata]
    return FOREIGN_MEMORIES | {f.name for f in settings if f.metadata["kind"].scale == "memory"}


def scale_of(name: str, optimizer: str) -> str:
    """The scale on which a setting of an optimizer is searched unless the study says otherwise.

    >>> scale_of("lr", "SGD"), scale_of("alpha", "RMSProp"), scale_of("rho", "Adadelta"), scale_of("weight_decay", "Adam")
    ('log', '1-x', '1-x', 'log')
    """
    known = optimizer_of(optimizer)
    found = parameters(known).get(name) if known else None
    if found is None:
        return "1-x" if name in memories() else "log"
    return "1-x" if found.kind.scale == "memory" else found.kind.scale


def _six(x: float) -> float:
    return float(f"{x:.6g}")


def volume(box: Mapping[str, Space]) -> float:
    return math.prod(space.width for space in box.values())


def inside(settings: Mapping[str, float], box: Mapping[str, Space]) -> bool:
    """Whether the searched settings lie in a box, up to their rounding to six digits."""
    return all(-1e-6 <= space.where(settings[name]) <= 1 + 1e-6 for name, space in box.items())


def edges(settings: Mapping[str, float], box: Mapping[str, Space], trials: int) -> dict[str, str]:
    """Settings at an end of their range, and at which end.

    The outermost of n points lies 1 / (n + 1) of the range from its end on average, so the edge is wider for few trials.
    """
    margin = max(EDGE, 1 / (trials + 1))
    found = {name: space.edge(settings[name], margin) for name, space in box.items()}
    return {name: end for name, end in found.items() if end is not None and not _bound(name, box[name], end)}


def _bound(name: str, space: Space, end: str) -> bool:
    """Whether the end of a range is the natural bound of a momentum or a decay, beyond which there are no values."""
    return end == "high" and space.high >= 1 and name in memories()


def points(boxes: list[Box], seed: tuple[int, ...], most: int = 2**16) -> Iterator[dict[str, float]]:
    """Settings in the last box and outside the boxes before it, in the order of a scrambled Sobol sequence.

    The iterator ends after ``most`` points of the sequence, because a box that hardly grew has few new points.
    """
    box = boxes[-1]
    if not box:
        yield {}  # Nothing is searched: one trial is enough.
        return
    for u in islice(sobol(len(box), seed), most):
        settings = {name: space.at(float(x)) for (name, space), x in zip(box.items(), u, strict=True)}
        if not any(inside(settings, earlier) for earlier in boxes[:-1]):
            yield settings
