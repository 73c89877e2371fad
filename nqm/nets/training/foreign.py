"""What the lab knows, without importing torch, of optimizers that only PyTorch trains: KFAC, and those of ``torch.optim``.

The package's own optimizers are not here, because their fields say which settings they have and on which scale.
"""

from __future__ import annotations

from ...optimizers import HeavyBall, Optimizer

DESCENT_OF: dict[str, type[Optimizer]] = {"KFAC": HeavyBall, "torch.SGD": HeavyBall}
"""The optimizer of the package that turns the gradient, or the preconditioned gradient, into a step."""
FOREIGN_MEMORIES = frozenset({"beta", "ema_decay", "factor_decay", "rho"})
"""Settings that are momenta or decays and that no optimizer of the package has; ``rho`` is Adadelta's.

Whether a setting is a decay decides the scale of its search, and the scale is part of the hash of a study. If a name left
this set, the stores of earlier studies with it would not be found again.
"""
