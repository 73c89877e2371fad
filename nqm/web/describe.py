"""What there is to choose, read off the engine itself: menus, ranges, and a sentence for every word."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, fields
from typing import Literal, get_args, get_origin, get_type_hints

from .. import __version__
from ..optimizers import Optimizer, Wrapper, free
from ..optimizers.base import Sampled, SampledWrapper
from ..optimizers.kinds import Kind
from ..search.sweeps import DEFINITIONS
from ..text.objects import known_optimizers, known_schedules, known_spectra
from ..text.tokens import argument_names
from .limits import REQUEST

Described = dict[str, object]
SPANS = {"memory": (0.0, 1 - 2.0**-14), "linear": (0.0, 1.0)}
"""What the sliders of the scales that have ends of their own span."""

TERMS = {
    "loss": "The expected loss of the reported weights, in expectation over gradient noise and start.",
    "signal": "The part of the loss that is left of the start; it falls with every step and does not depend on the batch size.",
    "noise": "The part of the loss that gradient noise adds; it is inversely proportional to the batch size.",
    "floor": "The loss at which a constant setting ends up, where noise comes in as fast as it is forgotten.",
    "bands": "The loss split by the curvature of its modes, one band for each factor of ten.",
    "curvature": "How fast the gradient changes along a direction: an eigenvalue h of the Hessian.",
    "spectrum": "The curvatures of a problem, with gradient noise c and start s along each.",
    "batch_size": "Examples in each step's gradient; its noise variance is c divided by this.",
    "steps": "Updates of the weights.",
    "examples": "Steps times batch size: what training costs where time is no object.",
    "target": "The loss to reach.",
    "effective_lr": "The learning rate of plain SGD that moves as far in the long run: with momentum, lr / (1 - momentum).",
    "critical_batch_size": "The batch size beyond which twice the batch no longer halves the steps.",
    "perfect_scaling": "Twice the batch, half the steps, through the point with the fewest examples.",
    "regimes": "Perfect scaling, diminishing returns, and the largest batches, which no longer save steps.",
    "paper": "The paper's bound on steps from noise alone, the sum of c / h over 2 B target.",
    "bayes": "Steps below which no method at all reaches the target, as so many gradients do not tell enough.",
    "conjugate_gradients": "Steps of conjugate gradients without noise: the best that any method in the gradients' span can do.",
    "noise_scale": "tr C / |g|^2, the batch size at which noise and signal of a gradient are alike.",
    "curvature_noise_scale": "The same weighted by curvature, tr HC / g'Hg.",
    "schedule": "Multipliers on learning rate, momentum or batch size over steps.",
    "pieces": "Stretches of equal length on which a schedule is constant.",
    "stability_limit": "The learning rate from which a direction grows instead of shrinking.",
    "boundary": "Where stability ends: beyond it the loss diverges.",
    "free": "Not set: tuning fills it in.",
    "quadratic": "Gradient noise has a fixed variance, as in Zhang et al. (2019).",
    "least_squares": "Gradient noise is that of minibatches of a linear regression, and shrinks with the loss.",
    "label_noise": "The variance of the labels' noise in a linear regression.",
    "offset": "The loss that a fitted network's quadratic cannot get rid of; add it to the losses of the model.",
    "reach": "Learning rate times steps times largest curvature: how far the weights travel, and so how far to trust a prediction.",
    "interval": "A 90% interval from the scatter of the noise vectors that were measured.",
}
PARAMETERS = {
    "lr": "How far a step goes: the gradient is multiplied by this.",
    "momentum": "How much of the last step is repeated in the next; the memory is 1 / (1 - momentum) steps.",
    "decay": "How much of the average is kept at each step; it averages over about 1 / (1 - decay) steps.",
    "power": "The gradient is divided by curvature to this power: 0 for none, 1 for Newton's method.",
    "Lookahead.alpha": "How far the slow weights go towards the fast ones.",
    "Lookahead.period": "Steps of the fast weights between two moves of the slow ones.",
    "Polyak.start": "Where the average begins: a fraction of the run, or a number of steps.",
    "beta1": "Momentum of the gradient's average.",
    "beta2": "Memory of the average of squared gradients.",
    "eps": "Added to the root of the squared gradients, so that nothing is divided by zero.",
    "weight_decay": "How fast weights shrink towards zero, beside the gradient.",
    "norm": "The longest gradient that is let through.",
    "RMSProp.alpha": "Memory of the average of squared gradients.",
    "drift": "The part by which the preconditioner's power swings.",
    "DriftingPreconditioned.period": "Steps of one swing of the preconditioner.",
    "order": "Whether the preconditioner acts before the momentum or after it.",
    "EstimatedPreconditioned.examples": "Examples whose gradients the preconditioner is estimated from.",
    "damping": "Added to the estimate, so that nothing is divided by zero.",
}
OUTCOME_SENTENCES = {
    "finished": "It ran to the last step.",
    "reached": "It reached the target.",
    "above_floor": "Noise keeps the loss above the target; a smaller learning rate, a larger batch or an average would help.",
    "diverged": "The learning rate is beyond the edge of stability, and the loss grows.",
    "out_of_steps": "The target was not reached within the steps that were allowed.",
}


def describe() -> Described:
    """All menus."""
    return {
        "version": __version__,
        "optimizers": [_optimizer(name, kind) for name, kind in known_optimizers().items()],
        "schedules": [_constructor(name, function) for name, function in known_schedules().items()],
        "spectra": [_constructor(name, function) for name, function in known_spectra().items()],
        "terms": TERMS | {name: sentence for name, sentence in PARAMETERS.items() if "." not in name},
        "definitions": DEFINITIONS,
        "outcomes": OUTCOME_SENTENCES,
        "limits": asdict(REQUEST),
    }


def _optimizer(name: str, kind: type[Optimizer]) -> Described:
    hints = get_type_hints(kind)
    shown = [_parameter(name, f, hints[f.name]) for f in fields(kind) if f.name != "inner"]
    wraps, linear = issubclass(kind, Wrapper), not issubclass(kind, (Sampled, SampledWrapper))
    return {"name": name, "sentence": _sentence(kind), "wraps": wraps, "linear": linear, "parameters": shown}


def _parameter(owner: str, f: Field[object], hint: object) -> Described:
    own, kind = f"{owner}.{f.name}", f.metadata.get("kind")
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    low, high = (None, None) if kind is None else _span(kind)
    return {
        "name": f.name,
        "sentence": PARAMETERS.get(own) or PARAMETERS[f.name],
        "allowed": " or ".join(choices) if kind is None else kind.allowed,
        "default": None if f.default is free or f.default is MISSING else f.default,
        "scale": "choice" if kind is None else kind.scale, "low": low, "high": high, "whole": bool(kind and kind.integer),
        "choices": list(choices) if choices else None,
    }  # fmt: skip


def _span(kind: Kind) -> tuple[float, float]:
    """What a slider spans: the box of the search, or ten times as far as the likely values reach on either side.

    >>> from nqm.optimizers.kinds import rate, whole
    >>> _span(rate().metadata["kind"]), _span(whole().metadata["kind"])
    ((1e-05, 10.0), (1.0, 256.0))
    """
    if kind.scale in SPANS:
        return SPANS[kind.scale]
    low, high = (float(kind.value(u)) for u in kind.likely or (kind.low, kind.high))
    if kind.integer:
        return low, high
    beyond = 1 if kind.likely else 0
    return 10.0 ** (round(math.log10(low)) - beyond), 10.0 ** (round(math.log10(high)) + beyond)


def _constructor(name: str, function: Callable[..., object]) -> Described:
    known, missing = inspect.signature(function).parameters, inspect.Parameter.empty
    given = {key: known[key].default for key in argument_names(function)}
    shown = [{"name": key, "default": None if value is missing else value} for key, value in given.items()]
    return {"name": name, "sentence": _sentence(function), "parameters": shown}


def _sentence(documented: object) -> str:
    """The first sentence of a docstring, without its markup."""
    text = " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
    return re.sub(r"`+", "", text)
