"""What a rule is: an optimizer that steps the weights of a stack of trials, each with settings of its own."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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


class Rule(ABC):
    """An optimizer at work on a stack of trials."""

    @property
    @abstractmethod
    def theta(self) -> Tensor:
        """The weights whose loss is reported, (trials, parameters)."""

    @abstractmethod
    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        """Step t, counted from 0, on the examples of an index."""

    @abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the trials."""


@dataclass(frozen=True)
class Method:
    """An optimizer by its name.

    ``check_settings`` refuses settings with a sentence. ``start(network, theta, settings, seeds)`` gives the rule at work on
    the rows of theta. Trials can be stacked where it ``stacks``, if their settings agree in the names of ``alike``.
    """

    name: str
    check_settings: Callable[[Settings, Network | None], None]
    start: Callable[[Network, Tensor, Sequence[Settings], Sequence[int]], Rule]
    stacks: bool
    alike: tuple[str, ...] = ()


def check_names(method: str, settings: Settings, known: Sequence[str], needed: Sequence[str] = ("lr",)) -> None:
    """Refuse a setting that the optimizer does not have, and the lack of one that it needs."""
    for name in settings:
        if name not in known:
            raise Wrong(f"{method} has no setting {name!r}; it has {', '.join(known)}", argument="settings")
    for name in needed:
        if name not in settings:
            raise Wrong(f"{method} needs a value of {name}; its settings are {', '.join(known)}", argument="settings")


def check_number(method: str, name: str, value: object, allowed: str, valid: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a number in its range."""
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or not valid(number):
        raise Wrong(f"{method}: {name} must be {allowed}, got {value!r}", argument="settings")


def check_switch(method: str, name: str, value: object) -> None:
    """Refuse a setting that is not on or off."""
    if value not in (0, 1):  # and so true or false
        raise Wrong(f"{method}: {name} must be true or false, got {value!r}", argument="settings")


def _operator(operation: Callable[[Any, Any], Any]) -> Callable[[Column, Any], Any]:
    """An operator of columns: with a tensor it gives a tensor, with a number or a column a column."""

    def apply(column: Column, other: Any) -> Any:
        if isinstance(other, Tensor):
            return operation(column.like(other), other)
        return Column(operation(column.values, other.values if isinstance(other, Column) else other))

    return apply


class Column:
    """A number for each trial of a stack, which acts on tensors as a Python number does.

    Among themselves and with numbers, columns are computed in float64; a tensor (trials, ...) keeps its precision. So ``1 - beta``
    is right to float32's last digit, as it is in a plain training, and not what is left after beta was rounded to float32.
    """

    def __init__(self, values: Sequence[float] | Tensor) -> None:
        self.values = torch.as_tensor(values, dtype=torch.float64)
        self.cast: dict[tuple[torch.dtype, int], Tensor] = {}

    def like(self, tensor: Tensor) -> Tensor:
        """The values in the precision of a tensor, along its first axis."""
        key = (tensor.dtype, tensor.ndim)
        if key not in self.cast:
            self.cast[key] = self.values.to(tensor.dtype).view(-1, *(1,) * (tensor.ndim - 1))
        return self.cast[key]

    def keep(self, rows: Sequence[int]) -> Column:
        return Column(self.values[list(rows)])

    __mul__ = __rmul__ = _operator(operator.mul)
    __add__ = __radd__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __rsub__ = _operator(lambda a, b: b - a)
    __truediv__ = _operator(operator.truediv)
    __rtruediv__ = _operator(lambda a, b: b / a)
    __pow__ = _operator(operator.pow)
