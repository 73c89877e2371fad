"""What an optimizer is: a small linear system with its start and read-out, and the update rule that it comes from.

One step on one mode of curvature h is ``x <- A x + b eps``, where x is a handful of slots (theta, velocity, average, ...).
An optimizer states the change, ``x <- x + G x + b eps`` with ``A = I + G``, because ``1 - lr h`` rounds to 1 if lr h is below
1e-16. Slots are in the units of the literature; the engine balances them.

The methods `begin`, `point`, `update` and `report` are the same algorithm as code. Sampled runs step this code. The two
statements share no code, so each checks the other. An optimizer that is not linear has no system. It can state its mean field
instead (`linearised`, `averaged`): the linear step that has the same mean and covariance, given the moments of its slots.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np

from ..engine.mean_field import Linearised, Seen
from ..engine.readable import Listed
from ..engine.trajectory import MAX_STEPS, Entry
from ..types import Array, Wrong
from .kinds import Kind, free

O = TypeVar("O", bound="Optimizer")

System = tuple[Sequence[Sequence[Entry]], Sequence[Entry]]

Tensor = Any
"""An array of any library, such as NumPy or torch, whose last axis is that of the parameters."""

State = tuple[Any, ...]
"""What an update rule remembers: arrays, the weights first. The state of a wrapper begins with that of its inner optimizer."""


class GeometryLike(Protocol):
    """What an update rule may ask about the curvature before its first step; `sampling.bases.Geometry` implements it."""

    @property
    def diagonal(self) -> Tensor: ...
    @property
    def rotation(self) -> Array | None: ...
    @property
    def gradient(self) -> Callable[[Tensor], Tensor] | None: ...
    def precondition(self, g: Tensor, power: float, /) -> Tensor: ...
    def preconditioned(self, power: float, /) -> GeometryLike: ...


@dataclass(frozen=True)
class Optimizer(metaclass=Listed):
    """An optimizer on one mode: ``x <- x + G x + b eps``; the loss is that of the weights ``r . x``.

    A subclass is a frozen dataclass. Its hyper-parameters are fields declared with `rate`, `decay` or `unit`. It has three
    methods for its exact moments, and `update` for sampled runs. `docs/extend.md` writes one step by step.
    """

    for_users: ClassVar[frozenset[str]] = frozenset({"effective_lr", "linear", "has_mean_field"})
    buffers: ClassVar[int] = 0
    """How many arrays, such as a velocity, the update rule keeps beside the weights; they start at zero."""

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __post_init__(self) -> None:
        for f in fields(self):
            kind, value = f.metadata.get("kind"), getattr(self, f.name)
            if kind is None or value is free:
                continue
            if isinstance(value, str) and value == "free":
                object.__setattr__(self, f.name, free)
                continue
            numbers = isinstance(value, (int, float, np.number, np.ndarray)) and not isinstance(value, bool)
            if not numbers or not np.all(np.isfinite(value) & kind.valid(value)):
                finite = "finite and " if numbers and not np.all(np.isfinite(value)) else ""
                must = f"{f.name} must be {finite}{kind.allowed}"
                raise Wrong(f"{type(self).__name__}: {must}, got {value!r}", argument=f.name)

    @abstractmethod
    def system(self, h: Array, t: int) -> System:
        """G as rows, and b, of step t (counted from 0); their entries broadcast against the curvatures h."""

    @abstractmethod
    def initial(self) -> Sequence[float]:
        """The slots at step 0 in units of theta_0: 1 for weights, 0 for a velocity."""

    @abstractmethod
    def readout(self, t: int) -> Sequence[Entry]:
        """The weights r of the slots in the parameters whose loss is reported after t steps."""

    def gradient_point(self, t: int) -> Sequence[Entry]:
        """The weights p of the slots in the parameters at which step t takes its gradient: ``G(h) = G(0) + h b p'``."""
        return [1.0, *(0.0 for _ in self.initial()[1:])]

    # The mean field. A linear optimizer is its own.

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        """The exponential averages that the mean field keeps: the decay of each, and the moment that it averages."""
        return ()

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        """Step t as a linear step with the same mean and covariance; t may lie between steps, in the middle of a block."""
        return Linearised(*self.system(seen.h, int(t)))

    @property
    def assumes_normal(self) -> bool:
        """Whether its mean field takes gradients for normal numbers, as that of a sign does."""
        return False

    @property
    def has_mean_field(self) -> bool:
        """Whether its moments are known without sampling: exactly, or by a mean field."""
        return self.linear

    # The update rule. The last axis of an array is that of the parameters. Only operators, abs, ** and
    # .sum(-1, keepdims=True) are used on arrays, so that any array library works, and nothing is changed in place.

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        """The state before the first step; the weights come first."""
        return (theta, *(0.0 * theta for _ in range(self.buffers)))

    def point(self, state: State, t: int) -> Tensor:
        """The weights at which step t takes its gradient."""
        return state[0]

    def update(self, state: State, g: Tensor, t: int) -> State:
        """The state after step t (counted from 0) with gradient g."""
        raise Wrong(
            f"{type(self).__name__} states its system but not its update rule; write its method update(state, g, t) "
            "to sample it, and begin(theta, geometry) if it remembers more than its weights"
        )

    def report(self, state: State, t: int) -> Tensor:
        """The weights whose loss is reported after t steps."""
        return state[0]

    def restart(self, state: State, theta: Tensor) -> State:
        """The state with other weights; velocities are kept."""
        return (theta, *state[1:])

    @property
    def linear(self) -> bool:
        """Whether it is a linear system, whose moments are exact; otherwise it has a mean field, or is sampled."""
        return True

    @property
    def elementwise(self) -> bool:
        """Whether its update treats each parameter by itself, without a norm over all of them."""
        return True

    def same_until(self, t: int) -> float:
        """The first step after t whose system differs from that of step t; infinity if there is none."""
        return math.inf

    @property
    def cycle(self) -> int:
        """The number of steps after which the systems repeat; 0 if they never do."""
        return 1

    @property
    def repeats_from(self) -> int:
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

    def pace(self, t: Array) -> Array | None:
        """If steps all differ, but G and b are affine in one scalar: that scalar for each step t."""
        return None

    def at_horizon(self, t: int) -> Optimizer:
        """The optimizer for a run of t steps, if it depends on the length of the run."""
        return self

    @property
    def depends_on_horizon(self) -> bool:
        """Whether runs of different lengths differ from their first step on, as the average of the last half of a run does."""
        return type(self).at_horizon is not Optimizer.at_horizon

    @property
    def endless(self) -> Optimizer:
        """The optimizer for a run of the largest possible length."""
        return self.at_horizon(MAX_STEPS)

    @property
    def settings(self) -> list[Entry]:
        """The values of its hyper-parameters and of those it wraps."""
        return [p.value for p in parameters(self).values()]

    def scaled(self, lr: Entry = 1.0, momentum: float = 1.0) -> Self:
        """The optimizer with its learning rates and momenta multiplied, as a schedule does.

        Adam's beta1 counts as a momentum, as in PyTorch's one-cycle schedule.
        """
        optimizer = self
        for names, factor in ((("lr",), lr), (("momentum", "beta1"), momentum)):
            for p in parameters(self).values():
                if p.path[-1] in names and not (np.isscalar(factor) and factor == 1.0):
                    optimizer = assign(optimizer, p.path, p.value * factor)
        return optimizer

    def edge(self, h: Array) -> Array:
        """The learning rate at which a mode of curvature h loses stability, approximately; searches measure rates by it."""
        return 2 / h

    @property
    def effective_lr(self) -> float:
        """The learning rate of plain SGD that moves as far per step in the long run."""
        return parameters(self)["lr"].value if "lr" in parameters(self) else math.nan

    @property
    def preconditioning(self) -> float:
        """The power p of the preconditioner H^-p that is applied to its gradients; 0 without one, or if p is free."""
        return 0.0

    def __str__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in fields(self) if not _omitted(f, getattr(self, f.name))]
        return f"{type(self).__name__}({', '.join(_shown(n, v) for n, v in shown)})"


@dataclass(frozen=True)
class Wrapper(Optimizer):
    """An optimizer that holds another one, ``inner``; the slots of ``inner`` come first."""

    inner: Optimizer

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", as_optimizer(self.inner, "inner"))
        if not isinstance(self.inner, Optimizer):
            raise Wrong(f"{type(self).__name__}: inner must be an optimizer, got {self.inner!r}", argument="inner")
        super().__post_init__()

    def gradient_point(self, t: int) -> Sequence[Entry]:
        seen = self.inner.gradient_point(t)
        return [*seen, *(0.0 for _ in self.initial()[len(seen) :])]

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        return (self.inner.begin(theta, geometry),)

    def point(self, state: State, t: int) -> Tensor:
        return self.inner.point(state[0], t)

    def report(self, state: State, t: int) -> Tensor:
        return self.inner.report(state[0], t)

    def restart(self, state: State, theta: Tensor) -> State:
        return (self.inner.restart(state[0], theta), *state[1:])

    def averaged(self, seen: Seen) -> Sequence[tuple[Entry, Array]]:
        return self.inner.averaged(seen)

    @property
    def assumes_normal(self) -> bool:
        return self.inner.assumes_normal

    @property
    def has_mean_field(self) -> bool:
        return self.linear or (self.inner.has_mean_field and type(self).linearised is not Optimizer.linearised)

    @property
    def linear(self) -> bool:
        return self.inner.linear

    @property
    def elementwise(self) -> bool:
        return self.inner.elementwise

    def same_until(self, t: int) -> float:
        return self.inner.same_until(t)

    @property
    def cycle(self) -> int:
        return self.inner.cycle

    @property
    def repeats_from(self) -> int:
        return self.inner.repeats_from

    @property
    def steady(self) -> bool:
        return self.inner.steady

    @property
    def averages(self) -> bool:
        return self.inner.averages

    def pace(self, t: Array) -> Array | None:
        return self.inner.pace(t)

    def at_horizon(self, t: int) -> Optimizer:
        return with_values(self, inner=self.inner.at_horizon(t))

    @property
    def depends_on_horizon(self) -> bool:
        return type(self).at_horizon is not Wrapper.at_horizon or self.inner.depends_on_horizon

    def edge(self, h: Array) -> Array:
        return self.inner.edge(h)

    @property
    def effective_lr(self) -> float:
        return self.inner.effective_lr

    @property
    def preconditioning(self) -> float:
        return self.inner.preconditioning


@dataclass(frozen=True)
class Averaging(Wrapper):
    """A wrapper that reports weights of its own, such as an average or slow weights, which it keeps in one more slot.

    A subclass states `joined`: the step of the inner optimizer, and below it that of the slot.
    """

    sums: ClassVar[bool] = False
    """Whether the slot is a sum of weights, which starts at zero, so that the average covers an ever longer time."""

    @abstractmethod
    def joined(self, G: Sequence[Sequence[Entry]], b: Sequence[Entry], t: int) -> System:
        """G and b of step t with the slot of this wrapper, from those of the inner optimizer; b may be any column of its slots."""

    def system(self, h: Array, t: int) -> System:
        return self.joined(*self.inner.system(h, t), t)

    def linearised(self, seen: Seen, averages: Sequence[Array], t: float) -> Linearised:
        G, *columns = self.inner.linearised(seen, averages, t)
        joined = [self.joined(G, column, int(t)) if column else (G, ()) for column in columns]
        return Linearised(joined[0][0], *(column for _, column in joined))

    def initial(self) -> list[float]:
        return [*self.inner.initial(), 0.0 if self.sums else 1.0]

    def readout(self, t: int) -> list[Entry]:
        return [*(0.0 for _ in self.inner.initial()), 1.0]

    def begin(self, theta: Tensor, geometry: GeometryLike) -> State:
        return self.inner.begin(theta, geometry), 0.0 * theta if self.sums else theta

    def report(self, state: State, t: int) -> Tensor:
        return state[1]

    def restart(self, state: State, theta: Tensor) -> State:
        return self.inner.restart(state[0], theta), state[1] if self.sums else theta

    @property
    def cycle(self) -> int:
        return self.inner.cycle if self.inner.steady else 0

    @property
    def steady(self) -> bool:
        return not self.sums

    @property
    def averages(self) -> bool:
        return self.sums or self.inner.averages

    def pace(self, t: Array) -> Array | None:
        return None


def follow(G: Sequence[Sequence[Entry]], b: Sequence[Entry], r: Sequence[Entry]) -> tuple[list[Entry], Entry]:
    """The weights ``r . x'`` after a step ``x' = x + G x + b eps``, in terms of the slots x before it.

    Returns the row ``r (I + G)`` and the noise ``r . b``, with which ``r . x' = row . x + noise eps``.
    """
    k = len(r)
    row: list[Entry] = [r[j] + sum(r[i] * G[i][j] for i in range(k)) for j in range(k)]
    return row, sum(r[i] * b[i] for i in range(k))


@dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of an optimizer or of one it wraps."""

    name: str
    path: tuple[str, ...]
    kind: Kind
    value: Any


def parameters(optimizer: Optimizer) -> dict[str, Parameter]:
    """All hyper-parameters by name, innermost first. If a name occurs twice, its path is the name (``inner.decay``).

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


def nested(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizer, what it wraps, what that wraps, and so on."""
    return [optimizer, *(nested(optimizer.inner) if isinstance(optimizer, Wrapper) else ())]


def free_parameters(optimizer: Optimizer) -> dict[str, Parameter]:
    """The hyper-parameters that are not set yet."""
    return {name: p for name, p in parameters(optimizer).items() if p.value is free}


def fill(optimizer: O, values: Mapping[str, Any]) -> O:
    """The optimizer with the named hyper-parameters set. Values are not checked and may be arrays of settings."""
    known = parameters(optimizer)
    for name, value in values.items():
        if name not in known:
            raise Wrong(f"{optimizer} has no parameter {name!r}; it has {', '.join(known)}")
        optimizer = assign(optimizer, known[name].path, value)
    return optimizer


Written = Optimizer | str
"""An optimizer, or the text of one, as users give it."""


def as_optimizer(
    optimizer: O | str, argument: str = "optimizer", also: Mapping[str, type[Optimizer]] | None = None
) -> O:
    """The optimizer itself, or the one that a text such as ``"EMA(SGD(0.1))"`` writes; the text is parsed and never evaluated.

    ``also`` are classes by name that are known besides those of `nqm.optimizers`.
    """
    if not isinstance(optimizer, str):
        return optimizer
    from ..text.objects import parse_optimizer

    try:
        return cast(O, parse_optimizer(optimizer, also=also))
    except Wrong as error:
        raise Wrong(str(error), argument) from None


def require_set(optimizer: Optimizer, verb: str) -> None:
    """Refuse an optimizer that has free parameters; the error names them."""
    if not isinstance(optimizer, Optimizer):
        raise Wrong(f"{verb} needs an optimizer such as SGD(0.1), got {optimizer!r}")
    if left := free_parameters(optimizer):
        raise Wrong(
            f"{verb} needs every hyper-parameter set, but {', '.join(left)} of {optimizer} is free; set it or use tune",
            argument="optimizer",
        )


def _walk(optimizer: Optimizer, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Kind, Any]]:
    for f in fields(optimizer):
        value = getattr(optimizer, f.name)
        if isinstance(value, Optimizer):
            yield from _walk(value, (*prefix, f.name))
    for f in fields(optimizer):
        if "kind" in f.metadata:
            yield (*prefix, f.name), f.metadata["kind"], getattr(optimizer, f.name)


def assign(optimizer: O, path: tuple[str, ...], value: Any) -> O:
    """The optimizer with the hyper-parameter at a path set, without a check."""
    name, *rest = path
    if rest:
        value = assign(getattr(optimizer, name), tuple(rest), value)
    return with_values(optimizer, **{name: value})


def with_values(optimizer: O, **changes: Any) -> O:
    """A copy of the optimizer with other values of these fields, without a check."""
    result = object.__new__(type(optimizer))
    vars(result).update(vars(optimizer), **changes)
    return result


def _omitted(f: Field[Any], value: Any) -> bool:
    """Whether a field is not printed, because it is a hyper-parameter at its default."""
    return "kind" in f.metadata and (value is f.default or (np.ndim(value) == 0 and value == f.default))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Optimizer):
        return str(value)
    if isinstance(value, str):
        return f'{name}="{value}"'
    close = isinstance(value, float) and 0.9999 < value < 1  # Six digits would leave too few digits of 1 - value.
    return f"{name}={value:.{12 if close else 6}g}" if isinstance(value, float) else f"{name}={value}"
