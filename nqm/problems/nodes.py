"""The same problem on a few quadrature nodes instead of on all of its modes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from ..engine.spectrum import HEAD
from ..optimizers.base import Optimizer

if TYPE_CHECKING:
    from .base import Problem

SMOOTH = 1e-6  # tolerance of the smooth nodes

P_co = TypeVar("P_co", bound="Problem", covariant=True)


class Nodes(Generic[P_co]):
    """A problem on the nodes of quadrature rules (`Spectrum.compress`), as accurate as their use needs.

    - ``fine``, to 1e-9 whatever the setting: maps, moving pictures, and confirming long runs.
    - ``coarse``, to the problem's ``coarseness`` once modes have stopped swinging, as in tuned runs: searches, which
      confirm their answer on better nodes or on all modes.
    - ``smooth``, to 1e-6 for optimizers of one slot, which never swing: their searches, and first scans of any search.
    """

    def __init__(self, problem: P_co) -> None:
        self._problem = problem

    @cached_property
    def fine(self) -> P_co:
        return self._problem.on(self._problem.modes.compress(1e-9))

    @cached_property
    def coarse(self) -> P_co:
        tol, head = self._problem.coarseness
        return self._problem.on(self._problem.modes.compress(tol, head=head))

    @cached_property
    def smooth(self) -> P_co:
        whole = self.coarse if self._problem.coarseness[0] <= SMOOTH else self._problem  # the coarse nodes do if better
        return self._problem.on(whole.modes.compress(SMOOTH, swings=False, head=HEAD // 4))

    def searched(self, optimizer: Optimizer) -> P_co:
        """The nodes that a search for this optimizer looks at."""
        return self.smooth if len(optimizer.initial()) == 1 else self.coarse
