"""K-FAC as an optimizer that a fit predicts and a network trains by. It has the settings of the lab's rule; torch is not needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NoReturn

from ..optimizers import kinds as of
from ..optimizers.base import GeometryLike, O, Optimizer, Tensor, as_optimizer, free_parameters
from ..optimizers.kinds import Number
from ..types import Array, Progress, Wrong

if TYPE_CHECKING:
    from torch import Tensor as Weights

    from ..engine.schedule import Schedule
    from .network import Network
    from .training.loop import Batches

NEEDS_LAYERS = (
    "KFAC preconditions the layers of a network, which a quadratic does not have; predict it from fit(network, optimizer=KFAC()), "
    "or train it with network.run or `nqm lab`"
)
METRIC_SETTINGS = ("damping", "decay", "inverse_period", "staleness", "empirical")
"""Settings that decide the preconditioner; a fit in the metric of KFAC has its own. The others may differ in a prediction."""


@dataclass(frozen=True)
class KFAC(Optimizer):
    """Natural gradient descent with Kronecker-factored curvature, the clip on its steps, and momentum.

    ::

        d <- P g,        d <- min(1, sqrt(kl_clip / (lr^2 d'g))) d,        v <- momentum v + d,        theta <- theta - lr v

    P is that of the lab's KFAC (`training.rules.kfac`), which says what the settings mean. Its settings that are not here have
    their defaults, without warmup, weight decay and adapted damping.

    >>> KFAC(0.1, momentum=0.5)
    KFAC(lr=0.1, momentum=0.5, damping=0.01, kl_clip=0.01, decay=0.95, inverse_period=10, staleness=0.05, empirical=0.0)

    References
    ----------
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature.
    """

    lr: Number = of.stride()
    momentum: Number = of.decay(0.0)
    damping: Number = of.positive(0.01)
    kl_clip: Number = of.positive(0.01, zero=True)
    decay: Number = of.decay(0.95)
    inverse_period: Number = of.whole(10)  # type: ignore[arg-type]
    staleness: Number = of.decay(0.05)
    empirical: Number = of.positive(0.0, zero=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.empirical not in (0, 1):
            raise Wrong(f"KFAC: empirical must be 0 or 1, got {self.empirical!r}", argument="empirical")

    @property
    def linear(self) -> bool:
        return False

    @property
    def effective_lr(self) -> float:
        return self.lr / (1 - self.momentum)

    def rule_settings(self) -> dict[str, float]:
        """The settings as the lab's rule takes them."""
        if missing := free_parameters(self):
            raise Wrong(f"{self} has no value of {', '.join(missing)}; set it to train", argument="optimizer")
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def walk(
        self, network: Network, batch_size: float, times: Sequence[int] | Array, schedule: Schedule | None,
        batches: Batches, progress: Progress | None,
    ) -> Iterator[tuple[int, Weights]]:  # fmt: skip
        """Train by the lab's rule from the network's checkpoint, as `training.loop.walk` does."""
        import torch

        from .training.rules.kfac import kfac
        from .training.stacks import Plain

        if schedule is not None:
            raise Wrong("trainings by KFAC take no schedule; `nqm lab` has its warmup", argument="schedule")
        method, settings, slopes = kfac(), self.rule_settings(), Plain(network)
        method.check_settings(settings, network)
        rule, t = method.start(network, network.theta[None].clone(), [settings], [int(batches.rng.integers(2**31))]), 0
        whole = torch.arange(network.examples, device="cpu")
        for i, last in enumerate(times):
            while t < int(last):
                index = whole if math.isinf(batch_size) else batches(round(batch_size))
                rule.step(slopes, index[None], t)
                t += 1
                if progress:
                    progress(t, int(times[-1]))
            yield i, rule.theta[0]

    def same_metric(self, other: KFAC) -> bool:
        """Whether both have the same preconditioner."""
        return all(getattr(self, name) == getattr(other, name) for name in METRIC_SETTINGS)

    def system(self, h: Array, t: int) -> NoReturn:
        raise Wrong(NEEDS_LAYERS, argument="optimizer")

    def initial(self) -> NoReturn:
        raise Wrong(NEEDS_LAYERS, argument="optimizer")

    def readout(self, t: int) -> NoReturn:
        raise Wrong(NEEDS_LAYERS, argument="optimizer")

    def begin(self, theta: Tensor, geometry: GeometryLike) -> NoReturn:
        raise Wrong(NEEDS_LAYERS, argument="optimizer")


def as_trained(optimizer: O | str) -> O:
    """The optimizer itself, or the one that a text writes; KFAC is known too."""
    return as_optimizer(optimizer, also={"KFAC": KFAC})


def parse_trained(text: str, *, allow_import: bool = False) -> Optimizer:
    """An optimizer from its constructor, as `text.objects.parse_optimizer` reads it; KFAC is known too.

    >>> print(parse_trained("KFAC(0.1, damping=0.001)"))
    KFAC(lr=0.1, damping=0.001)
    """
    from ..text.objects import parse_optimizer

    return parse_optimizer(text, allow_import=allow_import, also={"KFAC": KFAC})
