"""What a rule is: an optimizer that steps the weights of a stack of trials, each with settings of its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....types import Wrong
from ...network import Network
from ..stacks import Slopes

Settings = Mapping[str, Any]


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

    ``check`` refuses settings with a sentence; ``start(network, theta, settings, seeds)`` gives the rule at work on the rows of
    theta; trials can be stacked where it ``stacks``, if their settings agree in the names of ``alike``.
    """

    name: str
    check: Callable[[Settings, Network | None], None]
    start: Callable[[Network, Tensor, Sequence[Settings], Sequence[int]], Rule]
    stacks: bool
    alike: tuple[str, ...] = ()


def check_names(method: str, settings: Settings, known: Sequence[str], needed: Sequence[str] = ("lr",)) -> None:
    """Refuse a setting that the optimizer does not have, and the lack of one that it needs."""
    for name in settings:
        if name not in known:
            raise Wrong(f"{method} has no setting {name!r}; it has {', '.join(known)}")
    for name in needed:
        if name not in settings:
            raise Wrong(f"{method} needs a value of {name}; its settings are {', '.join(known)}")


def check_number(method: str, name: str, value: Any, allowed: str, valid: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a number in its range."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not valid(value):
        raise Wrong(f"{method}: {name} must be {allowed}, got {value!r}")


def check_switch(method: str, name: str, value: Any) -> None:
    """Refuse a setting that is not on or off."""
    if value not in (0, 1):  # and so true or false
        raise Wrong(f"{method}: {name} must be true or false, got {value!r}")


class Column:
    """A number for each trial of a stack, which acts on tensors as a Python number does.

    Among themselves and with numbers, columns are computed in float64; a tensor (trials, ...) keeps its precision. So ``1 - beta``
    is right to float32's last digit, as it is in a plain training, and not what is left after beta was rounded to float32.
    """

    def __init__(self, values: Any) -> None:
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

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Tensor):
            return operation(self.like(other), other)
        return Column(operation(self.values, other.values if isinstance(other, Column) else other))

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b / a)

    def __pow__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a**b)

    __rmul__, __radd__ = __mul__, __add__
