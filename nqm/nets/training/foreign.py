"""What is known without torch of the optimizers that only PyTorch trains: KFAC, and those of ``torch.optim``.

The package's own optimizers are asked themselves: their fields say which settings they have and on which scale.
"""

from __future__ import annotations

from ...optimizers import HeavyBall, Optimizer

DESCENT_OF: dict[str, type[Optimizer]] = {"KFAC": HeavyBall, "torch.SGD": HeavyBall}
"""The optimizer of the package that makes the step out of the gradient, or out of the preconditioned gradient."""
FOREIGN_MEMORIES = frozenset({"beta", "ema_decay", "factor_decay", "rho"})
"""Settings that are momenta or decays, and that no optimizer of the package has: ``rho`` is Adadelta's.

Whether a setting is a decay chooses the scale of its search. The scale is part of the hash of a study, so that a store
is found again only as long as no name leaves this set.
"""
