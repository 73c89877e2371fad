"""What a rule is: an optimizer that steps the weights of a stack of trials, each with its own settings."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from ..stacks import Slopes
from ..trial import JsonObject

Settings = JsonObject
"""Hyper-parameters of a trial by name."""
RANGES: dict[str, Callable[[float], bool]] = {
    "positive": lambda v: v > 0,
    "in [0, 1)": lambda v: 0 <= v < 1,
    "0 or more": lambda v: v >= 0,
    "a whole number, 0 or more": lambda v: v >= 0 and v == int(v),
    "a whole number, 1 or more": lambda v: v >= 1 and v == int(v),
    "a finite number": lambda v: True,
    "true or false": lambda v: v in (0, 1),
}
"""Tests of a number, by the words in which a message says what is allowed."""


class Rule(ABC):
    """An optimizer applied to a stack of trials."""

    @property
    @abstractmethod
    def theta(self) -> Tensor:
        """The weights whose loss is reported, (trials, parameters)."""

    @abstractmethod
    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        """Take step t, counted from 0, on the examples that ``index`` selects."""

    @abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Continue with the trials in these rows."""


@dataclass(frozen=True)
class Method:
    """An optimizer by its name.

    ``check_settings`` raises `Wrong` for settings that it cannot use. ``start(network, theta, settings, seeds)`` returns a
    `Rule` for the rows of theta. If it ``stacks``, trials whose settings agree in the names of ``alike`` can be stacked.
    """

    name: str
    check_settings: Callable[[Settings, Network | None], None]
    start: Callable[[Network, Tensor, Sequence[Settings], Sequence[int]], Rule]
    stacks: bool
    alike: tuple[str, ...] = ()


def check_settings(
    method: str, settings: Settings, known: Sequence[str], ranges: Mapping[str, str] | None = None,
    needed: Sequence[str] = ("lr",),
) -> None:  # fmt: skip
    """Refuse settings that are not known, that lack a needed one, or that lie outside their range, a key of `RANGES`."""
    for name in settings:
        if name not in known:
            raise Wrong(f"{method} has no setting {name!r}; it has {', '.join(known)}", argument="settings")
    for name in needed:
        if name not in settings:
            raise Wrong(f"{method} needs a value of {name}; its settings are {', '.join(known)}", argument="settings")
    for name, allowed in (ranges or {}).items():
        value = settings.get(name, math.nan)
        numeric = isinstance(value, (int, float)) and (allowed == "true or false" or not isinstance(value, bool))
        if name in settings and not (numeric and math.isfinite(value) and RANGES[allowed](value)):
            raise Wrong(f"{method}: {name} must be {allowed}, got {value!r}", argument="settings")


def _operator(operation: Callable[[Any, Any], Any]) -> Callable[[Column, Any], Any]:
    """An operator of columns; with a tensor it returns a tensor, with a number or a column it returns a column."""

    def apply(column: Column, other: Any) -> Any:
        if isinstance(other, Tensor):
            return operation(column.like(other), other)
        return Column(operation(column.values, other.values if isinstance(other, Column) else other))

    return apply


class Column:
    """One number for each trial of a stack, which acts on tensors (trials, ...) as a Python number does.

    Columns are combined with each other and with numbers in float64, and a tensor keeps its own precision. So ``1 - beta`` is
    accurate to the last digit of float32, as in a plain training, although beta itself is rounded when it meets a tensor.
    """

    def __init__(self, values: Sequence[float] | Tensor) -> None:
        self.values = torch.as_tensor(values, dtype=torch.float64, device="cpu")

    def like(self, tensor: Tensor) -> Tensor:
        """The values in the precision of a tensor, along its first axis."""
        return self.values.to(tensor.dtype).to(tensor.device).view(-1, *(1,) * (tensor.ndim - 1))

    def keep(self, rows: Sequence[int]) -> Column:
        """The numbers of the trials in these rows."""
        return Column(self.values[list(rows)])

    __mul__ = __rmul__ = _operator(operator.mul)
    __add__ = __radd__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __rsub__ = _operator(lambda a, b: b - a)
    __truediv__ = _operator(operator.truediv)
    __rtruediv__ = _operator(lambda a, b: b / a)
    __pow__ = _operator(operator.pow)
