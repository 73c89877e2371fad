"""A problem on few quadrature nodes instead of all its modes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ..engine.spectrum import HEAD, Spectrum
from ..optimizers.base import Optimizer
from ..optimizers.checks import require_consistent

if TYPE_CHECKING:
    from .base import Problem

P_co = TypeVar("P_co", bound="Problem", covariant=True)

SMOOTH = 1e-6  # tolerance of the smooth nodes (`Nodes.smooth`)
QUICK_TOLERANCE = 1e-4  # tolerance of the nodes on which mean fields are searched (`Nodes.followed_quickly`)
FAITHFUL = 1e-3  # largest relative error of sums in which c and s stand together, for nodes that serve a mean field


class Nodes(Generic[P_co]):
    """A problem on the nodes of quadrature rules (`Spectrum.compress`), as accurate as each use needs.

    - ``fine``: accurate to 1e-9 at any setting, for maps, animations, and the confirmation of long runs.
    - ``coarse``: accurate to the ``coarseness`` of the problem once modes have stopped oscillating, as in tuned runs. Searches
      use these nodes and confirm their answer on better nodes or on all modes.
    - ``smooth``: accurate to 1e-6 for optimizers of one slot, which never oscillate; for their searches, and for the first
      scan of any search.
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
        whole = self.coarse if self._problem.coarseness[0] <= SMOOTH else self._problem  # Better coarse nodes suffice.
        return self._problem.on(whole.modes.compress(SMOOTH, swings=False, head=HEAD // 4))

    def searched(self, optimizer: Optimizer) -> P_co:
        """The nodes on which a search for this optimizer works."""
        require_consistent(optimizer)
        return self.smooth if len(optimizer.initial()) == 1 else self.coarse

    @cached_property
    def followed(self) -> P_co:
        """The problem on which a mean field is followed: on the coarse nodes, unless they blur how c and s differ between modes.

        Coarse nodes are accurate to 1e-4 or better, and a mean field is not.
        """
        return self.coarse if _faithful(self.coarse.modes, self._problem.modes) else self._problem

    @cached_property
    def followed_quickly(self) -> P_co:
        """The same for the many runs of a search, on fewer nodes: their answer is confirmed on those of `followed`."""
        few = self._problem.on(self._problem.modes.compress(QUICK_TOLERANCE, swings=False, head=HEAD // 16))
        return few if _faithful(few.modes, self._problem.modes) else self.followed


def _faithful(nodes: Spectrum, modes: Spectrum) -> bool:
    """Whether nodes serve an optimizer that is not linear, to which c and s of a mode do not just add up.

    Nodes have the signal and the noise of the modes that they replace. If these modes have like c / h and s, then sums of
    products of both are right as well.
    """

    def sums(spectrum: Spectrum) -> np.ndarray:
        ratio = spectrum.c / spectrum.h
        mixed = (
            np.sqrt(spectrum.s * ratio),
            spectrum.s**2 / (spectrum.s + ratio + 1e-300),
            np.sqrt(spectrum.s),
            np.sqrt(ratio),
        )
        return np.array([(spectrum.count * spectrum.h) @ each for each in mixed])

    exact = sums(modes)
    return bool(np.all(np.abs(sums(nodes) - exact) <= FAITHFUL * exact))
