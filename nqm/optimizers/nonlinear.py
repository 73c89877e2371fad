"""What an optimizer is that is not a linear system, and the pieces that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..types import Array, Wrong
from .base import Entry, Linearised, Optimizer, Seen, State, System, Tensor, Wrapper


class NotLinear(ABC):
    """The statements of an optimizer that has no linear system: its update rule and, if it has one, its mean field.

    For a mean field a class states `linearised`, `initial` and, if it keeps exponential averages such as Adam's v, `averaged`.
    """

    @abstractmethod
    def update(self, state: State, g: Tensor, t: int) -> State: ...

    @property
    def linear(self) -> bool:
        return False

    @property
    def has_mean_field(self) -> bool:
        return type(self).linearised is not NotLinear.linearised

    def system(self, h: Array, t: int) -> System:
        refuse_moments(self)

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        refuse_moments(self)

    def initial(self) -> Sequence[float]:
        refuse_moments(self)

    def readout(self, t: int) -> Sequence[Entry]:
        return [1.0, *(0.0 for _ in self.initial()[1:])]


@dataclass(frozen=True)
class Nonlinear(NotLinear, Optimizer):
    """An optimizer that is not a linear system; its loss is that of its mean field, or sampled if it states none."""


@dataclass(frozen=True)
class NonlinearWrapper(NotLinear, Wrapper):
    """A wrapper whose update is not linear, whatever it holds; its loss is that of its mean field, or sampled if it states none."""

    @property
    def has_mean_field(self) -> bool:
        return self.inner.has_mean_field and type(self).linearised is not NotLinear.linearised

    def initial(self) -> Sequence[float]:
        return self.inner.initial()

    def readout(self, t: int) -> Sequence[Entry]:
        return self.inner.readout(t)


def refuse_moments(optimizer: object) -> NoReturn:
    """Refuse to state moments for an optimizer that has neither a linear system nor a mean field."""
    raise Wrong(
        f"{type(optimizer).__name__} is sampled: it has neither exact moments nor a mean field; use problem.sample or nqm curve "
        "for its loss over steps, tune or sweep for its best settings",
        argument="optimizer",
    )


@dataclass(frozen=True)
class Strided(Nonlinear):
    """An optimizer whose learning rate is a `stride`: in units of the weights, whatever the curvature."""

    def edge(self, h: Array) -> Array:
        return 1.0 + 0.0 * h


def adapted(m: Tensor, v: Tensor, g: Tensor, t: int, beta1: float, beta2: float, eps: float) -> tuple[Tensor, ...]:
    """Adam's averages of the gradient and of its square after step t, and the direction they give."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    unbiased = (1 - beta2 ** (t + 1)) ** -0.5
    return m, v, m / (1 - beta1 ** (t + 1)) / (v**0.5 * unbiased + eps)


def norm(g: Tensor) -> Tensor:
    """The Euclidean norm over all parameters."""
    return (g * g).sum(-1, keepdims=True) ** 0.5
