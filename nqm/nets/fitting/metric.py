"""What a fit in the metric of Adam keeps beside curvature, signal and noise.

At a checkpoint with Adam's state let ``D = 1 / (sqrt(v_hat) + eps)``. As long as D stays as it is, a step of Adam is a linear one,

    m <- beta1 m + (1 - beta1) g,        theta <- theta - lr weight_decay theta - lr D m / (1 - beta1^t),

and with ``w = D^-1/2 theta`` it is a step of plain momentum on the curvature ``D^1/2 G D^1/2`` (`Rescaled`). So a fit in this
metric measures the same things as any fit, and three more: the momentum m that the state brings along, the pull of weight
decay, and how v will drift, ``v_i <- beta2 v_i + (1 - beta2) (g_i^2 + c_i / B)``, because the batch size or the loss changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...optimizers import Adam, AdamW
from ...text.objects import parse_optimizer
from ...types import Array, Wrong


@dataclass(frozen=True, eq=False)
class AdamMetric:
    """What a fit in the metric of Adam keeps beside curvature, signal and noise; a file of the fit has it all.

    ``h``, ``g``, ``m`` and ``pull`` belong to the nodes of the signal: curvature, gradient, momentum, and the change per unit of
    lr x weight decay. ``rest_h`` and ``rest_m2`` are the part of the momentum outside of them. ``drift_g2`` and ``drift_c`` are
    gradient squared and noise variance of some weights, over their v_hat. ``norm2`` has |g|^2 and tr C in units of the weights.
    """

    optimizer: Adam | AdamW
    step: int
    h: Array
    g: Array
    m: Array
    pull: Array
    rest_h: Array
    rest_m2: Array
    drift_g2: Array
    drift_c: Array
    norm2: Array

    def to_dict(self) -> dict[str, object]:
        """The optimizer and its step, as the note of a file has them."""
        return {"optimizer": str(self.optimizer), "step": self.step, "plain_noise_scale": self.plain_noise_scale}

    def columns(self) -> dict[str, Array]:
        """The arrays, as a file has them."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    @classmethod
    def from_columns(cls, note: Mapping[str, Any], columns: Mapping[str, Array]) -> AdamMetric:
        """The metric in a file."""
        optimizer = parse_optimizer(str(note["optimizer"]))
        if not isinstance(optimizer, Adam | AdamW):
            raise Wrong(f"its metric is that of {optimizer}, which this version does not know")
        return cls(optimizer, int(note["step"]), **columns)

    @property
    def plain_noise_scale(self) -> float:
        """tr C / |g|^2 in units of the weights, from some of the examples; that of the fit is in the metric."""
        return float(self.norm2[1] / self.norm2[0])
