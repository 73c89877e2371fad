"""Negative curvature, measured and kept apart.

Along a mode of curvature -k with gradient g a quadratic has no minimum: t steps of learning rate lr lower its loss by

    g^2 / (2 k) ((1 + lr k)^(2 t) - 1).

In the fitted quadratic such a mode is nearly flat, with the curvature `NEARLY_FLAT` times the largest. Its loss falls equally
fast at first and goes on falling, but does not speed up. The descent of a fit measures what the network's loss does, so a
prediction that is corrected by a descent includes the difference. The plain quadratic lacks it, and says how much that is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...types import Array

NEARLY_FLAT = 1e-3  # curvature, over the largest, that stands for a negative one; it is flat for most of a descent
TOLD_SHARE = 1e-3  # a smaller share of the squared gradient on negative curvature is not worth a sentence


@dataclass(frozen=True, eq=False)
class Negative:
    """The signal nodes of negative curvature: h, the squared gradient g2 on each, and their share of the squared gradient."""

    h: Array
    g2: Array
    share: float

    @property
    def least(self) -> float:
        """The most negative curvature; 0 if there is none."""
        return float(self.h.min(initial=0.0))

    @property
    def told(self) -> bool:
        """Whether there is enough of it to say so."""
        return self.share > TOLD_SHARE

    def lost(self, lr: float, steps: int) -> float:
        """By how much more the loss falls along these modes than if they were flat; infinite if too large for a number."""
        k = -self.h
        with np.errstate(over="ignore"):
            fallen = np.expm1(2 * steps * np.log1p(lr * k)) / (2 * k)
            return float((self.g2 * (fallen - lr * steps)).sum())

    def sentence(self, lost: float | None = None) -> str:
        """What it means for a prediction; ``lost`` is the fall of the loss that the plain quadratic lacks."""
        about = f"{self.share:.2g} of the squared gradient lies on negative curvature, down to {self.least:.3g}"
        if lost is None:
            return f"{about}; the descent measured what the loss does along it"
        return f"{about}, and the quadratic takes it as flat: along it the loss falls by {lost:.3g} more"


def negative_part(h: Array, g2: Array) -> Negative:
    """The signal nodes of negative curvature."""
    mine, total = h < 0, float(np.sum(g2))
    return Negative(h[mine], np.maximum(g2[mine], 0.0), float(g2[mine].sum()) / total if total > 0 else 0.0)
