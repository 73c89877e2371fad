"""The metric of K-FAC: what a fit in the units of its preconditioner keeps of it, as plain arrays that a file holds.

With the preconditioner P of the checkpoint, a step ``theta <- theta - lr P g`` is a plain one of ``w = P^-1/2 theta``
(`Rescaled`), and momentum after preconditioning is plain heavy ball. As the loss falls, P changes. Its drift at a loss L is

    delta(L) = g' P_L g / g' P g,

with P_L the preconditioner and g the gradient where the descent of the fit has this loss. A prediction multiplies steps by it.

Weights that noise has moved away have a noisier gradient than weights of the same loss on the descent. So at some points of the
descent random noise is added to the weights, and the gain of tr P C, over that at the checkpoint, per unit of added loss is kept too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...optimizers.base import parameters
from ...types import Array, Wrong
from ..natural import KFAC


@dataclass(frozen=True, eq=False)
class KFACMetric:
    """What a fit in the metric of K-FAC keeps beside curvature, signal and noise; a file of the fit has it all.

    ``drift`` is delta at the losses ``drift_loss``, which rise, and ``stir`` what the noise of gradients gains there per unit of loss
    that noise in the weights adds. ``norm2`` has |g|^2 and tr C in units of the weights.
    """

    optimizer: KFAC
    drift_loss: Array
    drift: Array
    stir: Array
    norm2: Array
    step: int = 0  # a K-FAC that a fit predicts always starts at the checkpoint

    def to_dict(self) -> dict[str, object]:
        """The settings of the optimizer, as the note of a file has them."""
        settings = {name: p.value for name, p in parameters(self.optimizer).items() if isinstance(p.value, int | float)}
        return {"optimizer": str(self.optimizer), "kfac": settings, "plain_noise_scale": self.plain_noise_scale}

    def columns(self) -> dict[str, Array]:
        """The arrays, as a file has them."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    @classmethod
    def from_columns(cls, note: Mapping[str, Any], columns: Mapping[str, Array]) -> KFACMetric:
        """The metric in a file."""
        try:
            optimizer = KFAC(**note["kfac"])
        except TypeError:
            raise Wrong(f"its metric is that of {note['optimizer']}, which this version does not know") from None
        return cls(optimizer, columns["drift_loss"], columns["drift"], columns["stir"], columns["norm2"])

    @property
    def plain_noise_scale(self) -> float:
        """tr C / |g|^2 in units of the weights, from some of the examples; that of the fit is in the metric."""
        return float(self.norm2[1] / self.norm2[0])

    def drifted(self, loss: float) -> float:
        """delta at a loss of the descent."""
        return self._at(loss, self.drift) if len(self.drift) else 1.0

    def stirred(self, loss: float) -> float:
        """What the noise of gradients gains per unit of loss that noise in the weights adds, at a loss of the descent."""
        return self._at(loss, self.stir) if self.stir.any() else 0.0

    def _at(self, loss: float, values: Array) -> float:
        """The value at a loss; logarithms are interpolated, and it is constant outside of the descent."""
        inside = np.clip(loss, self.drift_loss[0], self.drift_loss[-1])
        return float(np.exp(np.interp(np.log(inside), np.log(self.drift_loss), np.log(values))))
