"""Which optimizers have updates of a size of their own, by their names: it decides how learning rates become effective ones."""

from __future__ import annotations

from ..optimizers import Optimizer
from ..types import unknown

ADAPTIVE = (
    "adam", "adan", "lion", "adafactor", "lamb", "lars", "rmsprop", "rprop", "adagrad", "adadelta", "adabelief", "adabound", "yogi",
    "shampoo", "soap", "muon", "sign", "normalis", "normaliz", "novograd", "sophia", "prodigy", "ademamix", "lomo", "scion",
)  # fmt: skip
"""Parts of the names of optimizers whose updates have a size of their own."""

NOT_ADAPTIVE = (
    "sgd",
    "heavyball",
    "heavy_ball",
    "heavy ball",
    "momentum",
    "nesterov",
    "gradient descent",
    "gradient_descent",
)
"""Parts of the names of optimizers whose updates are proportional to gradients."""

OTHER = "other"
"""The name for an optimizer that is not known here."""

OFFERED = (
    "AdamW", "Adam", "NAdam", "RAdam", "Adafactor", "Adagrad", "RMSprop", "LAMB", "LARS", "Lion", "Muon", "Shampoo", "SOAP", "Sophia",
    "Prodigy", "SGD", "momentum", "Nesterov",
)  # fmt: skip
"""The names that a misspelt one is compared with."""


def adaptive(optimizer: Optimizer | str) -> bool:
    """Whether an optimizer's updates have a size of their own. A name that is not known is refused.

    >>> [adaptive(name) for name in ("AdamW", "adamw_torch_fused", "SGD with momentum", "other")]
    [True, True, False, False]
    >>> adaptive("AdmW")
    Traceback (most recent call last):
    nqm.types.Wrong: there is no optimizer called 'AdmW' (did you mean AdamW?); ...
    """
    name = str(optimizer).lower()
    if any(each in name for each in ADAPTIVE):
        return True
    if any(each in name for each in NOT_ADAPTIVE) or name.strip() == OTHER:
        return False
    if isinstance(optimizer, Optimizer):
        return not optimizer.linear
    more = (
        f", and {OTHER} for one that is not in this list: its updates are then taken as proportional to gradients, as those of SGD. "
        "If they have a size of their own, say AdamW"
    )
    raise unknown("optimizer called", optimizer.partition("(")[0], OFFERED, more, argument="optimizer")
