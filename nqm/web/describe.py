"""What a user can choose, taken from the library itself: menus, ranges, and a sentence about every term of the page."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, fields
from typing import Literal, get_args, get_origin, get_type_hints

from .. import __version__
from ..optimizers import Optimizer, Wrapper, free
from ..optimizers.kinds import Kind
from ..optimizers.nonlinear import Nonlinear, NonlinearWrapper
from ..search.sweeps import DEFINITIONS
from ..text.objects import KNOWN_OPTIMIZERS, KNOWN_SCHEDULES, KNOWN_SPECTRA
from ..text.tokens import argument_names
from .limits import REQUEST

Described = dict[str, object]
SPANS = {"memory": (0.0, 1 - 2.0**-14), "linear": (0.0, 1.0)}
"""The ranges of sliders on the scales whose values are bounded."""

TERMS = {
    "loss": "The loss of the weights, in expectation over the gradient noise and the starting point.",
    "signal": "The part of the loss that remains from the starting point; it does not depend on the batch size.",
    "noise": "The part of the loss that gradient noise adds; it is inversely proportional to the batch size.",
    "floor": "The noise floor: the loss that a constant setting approaches, at which every step adds as much noise as it removes.",
    "bands": "The loss split by the curvature of its modes, one band for each factor of ten.",
    "curvature": "How fast the gradient changes along a direction: an eigenvalue h of the Hessian.",
    "spectrum": "The curvatures h of a problem, with the gradient noise c and the squared initial distance s along each.",
    "batch_size": "The number of examples in the gradient of each step; the variance of its noise is c divided by this number.",
    "steps": "Updates of the weights.",
    "examples": "Steps times batch size: the number of examples that training has used.",
    "target": "The loss to reach.",
    "effective_lr": "The learning rate of SGD that moves equally far in the long run: with momentum, lr / (1 - momentum).",
    "critical_batch_size": "The batch size at which training takes twice the steps of perfect scaling, by default.",
    "perfect_scaling": "Twice the batch needs half the steps; the line goes through the point with the fewest examples.",
    "regimes": "Three ranges of batch sizes: perfect scaling, diminishing returns, and no further gain.",
    "paper": "The paper's lower bound on the steps, from noise alone: sum of c / h, divided by 2 B times the target.",
    "bayes": "A lower bound on the steps of any method: fewer gradients do not contain enough information to reach the target.",
    "conjugate_gradients": "The steps of conjugate gradients without noise, the fewest of any method that combines past gradients.",
    "noise_scale": "tr C / |g|^2, the batch size at which the noise of a gradient is as large as the gradient itself.",
    "curvature_noise_scale": "The noise scale weighted by curvature, tr HC / g'Hg.",
    "schedule": "Multipliers on learning rate, momentum or batch size over steps.",
    "pieces": "The parts of equal length in which a schedule is constant.",
    "max_rate": "Limits a best schedule by its largest rate (a number, paper, or inf) instead of by the loss on the way.",
    "stability_limit": "The learning rate above which the weights grow along some direction instead of converging.",
    "boundary": "The edge of stability: beyond it the loss diverges.",
    "free": "Not set: tuning chooses the value.",
    "quadratic": "Gradient noise has a fixed variance, as in Zhang et al. (2019).",
    "least_squares": "Gradient noise is that of minibatches of a linear regression; it shrinks with the loss.",
    "label_noise": "The variance of the labels' noise in a linear regression.",
    "offset": "The loss of a fitted network at the minimum of its quadratic; add it to the losses of the model.",
    "reach": "Learning rate times steps times largest curvature: how far training goes; predictions are less certain further on.",
    "interval": "A range that should hold the loss of 90% of trainings; its width comes from the test that the fit made of itself.",
}
PARAMETERS = {
    "lr": "The factor by which a step multiplies the gradient.",
    "momentum": "The fraction of the last step that the next step repeats; the memory is 1 / (1 - momentum) steps.",
    "decay": "The fraction of the average that each step keeps; the average extends over about 1 / (1 - decay) steps.",
    "power": "The gradient is divided by the curvature to this power: 0 changes nothing, 1 is Newton's method.",
    "Lookahead.alpha": "The fraction of the way that the slow weights move towards the fast weights.",
    "Lookahead.period": "Steps of the fast weights between two moves of the slow weights.",
    "Polyak.start": "Where the average begins: a fraction of the run, or a number of steps.",
    "beta1": "Momentum of the gradient's average.",
    "beta2": "Memory of the average of squared gradients.",
    "eps": "Added to the root of the squared gradients, so that nothing is divided by zero.",
    "weight_decay": "The rate at which weights shrink towards zero, independently of the gradient.",
    "norm": "The largest norm of a gradient; longer gradients are scaled down to it.",
    "RMSProp.alpha": "Memory of the average of squared gradients.",
    "drift": "The relative amplitude by which the power of the preconditioner oscillates.",
    "DriftingPreconditioned.period": "The period of that oscillation, in steps.",
    "order": "Whether the preconditioner acts before the momentum or after it.",
    "EstimatedPreconditioned.examples": "The number of examples from whose gradients the preconditioner is estimated.",
    "damping": "Added to the estimate, so that nothing is divided by zero.",
}
OUTCOME_SENTENCES = {
    "finished": "The run came to its last step.",
    "reached": "The target was reached.",
    "above_floor": "Noise keeps the loss above the target; a smaller learning rate, a larger batch or an average would help.",
    "diverged": "The learning rate is beyond the edge of stability, and the loss grows.",
    "out_of_steps": "The target was not reached within the steps that were allowed.",
}


def describe() -> Described:
    """The answer of /api/describe."""
    return {
        "version": __version__,
        "optimizers": [_optimizer(name, kind) for name, kind in KNOWN_OPTIMIZERS.items()],
        "schedules": [_constructor(name, function) for name, function in KNOWN_SCHEDULES.items()],
        "spectra": [_constructor(name, function) for name, function in KNOWN_SPECTRA.items()],
        "terms": TERMS | {name: sentence for name, sentence in PARAMETERS.items() if "." not in name},
        "definitions": DEFINITIONS,
        "outcomes": OUTCOME_SENTENCES,
        "limits": asdict(REQUEST),
    }


def _optimizer(name: str, kind: type[Optimizer]) -> Described:
    hints = get_type_hints(kind)
    shown = [_parameter(name, f, hints[f.name]) for f in fields(kind) if f.name != "inner"]
    wraps, linear = issubclass(kind, Wrapper), not issubclass(kind, (Nonlinear, NonlinearWrapper))
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
    """The range of a slider: that of the search, or, around likely values, ten times further on either side.

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
