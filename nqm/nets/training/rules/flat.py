"""The package's own optimizers on stacks of weights, by the same update rules as in `Quadratic.sample`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from ....engine.schedule import Schedule
from ....optimizers import Adam, AdamW, Optimizer
from ....optimizers.base import Wrapper, fill, free_parameters, parameters
from ....sampling.stepping import Stepper
from ....text.objects import KNOWN_OPTIMIZERS
from ...network import Network
from ...trees import indexed
from ..loop import Unknown
from ..stacks import Slopes
from .base import Column, Method, Rule, Settings, check_settings

OPTIMIZERS = [kind for kind in KNOWN_OPTIMIZERS.values() if not issubclass(kind, Wrapper)]
USUAL_SETTINGS: dict[type[Optimizer], Mapping[str, float]] = {Adam: {"beta1": 0.9}, AdamW: {"beta1": 0.9}}
"""Values of settings that a study omits, in addition to the defaults of the optimizers themselves."""


class Flat(Rule):
    """An optimizer's ``update`` applied to the rows of theta; hyper-parameters are columns, one number for each trial."""

    def __init__(
        self, kind: type[Optimizer], theta: Tensor, settings: Sequence[Settings], schedule: Schedule | None = None
    ) -> None:
        empty = kind(**USUAL_SETTINGS.get(kind, {}))
        values = [{**{n: p.value for n, p in parameters(empty).items()}, **one} for one in settings]
        self.empty, self.columns = empty, {name: _column([one[name] for one in values]) for name in values[0]}
        optimizer = fill(empty, self.columns)
        self.stepper = Stepper(optimizer, optimizer.begin(theta.detach().clone(), Unknown()), schedule=schedule)

    @property
    def theta(self) -> Tensor:
        return self.stepper.weights()

    def step(self, slopes: Slopes, index: Tensor, t: int) -> None:
        self.stepper.to(t + 1, lambda theta, _: slopes(theta, index))

    def advance(self, g: Tensor, t: int) -> None:
        """Take step t with these gradients."""
        self.stepper.to(t + 1, lambda *_: g)

    def shrink(self, factor: Column) -> None:
        """Multiply the weights of each trial by a factor, before a step: decoupled weight decay."""
        theta, *rest = self.stepper.state
        self.stepper.state = (factor * theta, *rest)

    def keep(self, rows: Sequence[int]) -> None:
        chosen = list(rows)
        self.columns = {n: c.keep(chosen) if isinstance(c, Column) else c for n, c in self.columns.items()}
        self.stepper.switch(fill(self.empty, self.columns), indexed(self.stepper.state, chosen))


def _column(values: list[float]) -> Column | float:
    """A column, or a plain number if all trials have the same."""
    return values[0] if len(set(values)) == 1 else Column(values)


def method(kind: type[Optimizer]) -> Method:
    """An optimizer of the package as a method of the lab."""
    name, usual = kind.__name__, USUAL_SETTINGS.get(kind, {})
    known = list(parameters(kind()))
    needed = [n for n in free_parameters(kind()) if n not in usual]

    def check(settings: Settings, network: Network | None = None) -> None:
        check_settings(name, settings, known, needed=needed)
        kind(**{**usual, **settings})  # checks its values itself

    return Method(name, check, lambda net, theta, settings, _: Flat(kind, theta, settings), stacks=True)
