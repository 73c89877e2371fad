"""Laws of gradient noise with mean 0 and variance 1, by name or as a function of your own.

The mean loss of a linear optimizer depends on the noise only through its variance. Sampling under other laws shows this,
and it shows how heavy tails affect an optimizer that is not linear.

>>> law("student_t(5)").draw(np.random.default_rng(0), np.empty(3)).round(3).tolist()
[0.109, 0.106, 0.811]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..types import Array, Wrong, unknown

Draw = Callable[[np.random.Generator, Array], Array]
Function = Callable[[np.random.Generator, tuple[int, ...]], ArrayLike]

CALL = re.compile(r"(\w+)\s*(?:\((.*)\))?")  # a name, and the text in brackets after it
STUDENT_T = re.compile(r"(?:df\s*=)?([^/,]+)(?:/([^/,]+))?")  # the number in "student_t(df=5)" or "student_t(5/2)"
TRIAL_SHAPE = (64, 1024)  # shape of the draw on which a user's function is checked
MAX_TRIAL_MEAN = 0.1  # largest absolute mean of the trial draw: 25 standard errors at variance 1
TRIAL_VARIANCES = (0.5, 2.0)  # smallest and largest variance of the trial draw, which scatters under heavy tails


@dataclass(frozen=True)
class Law:
    """A law of noise: ``draw(rng, out)`` fills an array and returns it; ``warning`` says which moments do not exist."""

    name: str
    draw: Draw
    warning: str = ""


def law(noise: str | Function | Law, argument: str = "noise") -> Law:
    """The law of this name, or that of a function ``(rng, shape) -> array`` of mean 0 and variance 1, which is tried once.

    Names are ``gaussian``, ``rademacher`` (-1 or +1), ``laplace``, ``exponential`` (centred), ``student_t(df)`` and
    ``cauchy``. A law without a variance is not rescaled, and a run with it says so. Errors name ``argument``.
    """
    if isinstance(noise, Law):
        return noise
    try:
        if isinstance(noise, str):
            return _named(noise.strip())
        if callable(noise):
            return _tried(noise)
    except Wrong as error:
        raise Wrong(f"{argument}: {error}", argument) from None
    sentence = f"{argument}: it must be a name such as 'gaussian', or a function of (rng, shape), got {noise!r:.60}"
    raise Wrong(sentence, argument)


def student_t(df: float) -> Law:
    """Student's t with df degrees of freedom, scaled to variance 1 if it has a variance, which needs df above 2."""
    if not 0 < df < math.inf:
        raise Wrong(f"student_t: df must be positive, got {df:g}")
    name, scale = f"student_t({df:g})", math.sqrt((df - 2) / df) if df > 2 else 1.0
    missing = "" if df > 2 else ("variance" if df > 1 else "mean and no variance")
    warning = f"{name} noise has no {missing}: the mean loss is infinite, and its estimate is meaningless"
    return _drawing(name, lambda rng, shape: rng.standard_t(df, shape) * scale, warning if missing else "")


def _drawing(name: str, function: Function, warning: str = "") -> Law:
    """A law from a function that returns new arrays; a draw copies them into the given array."""

    def draw(rng: np.random.Generator, out: Array) -> Array:
        out[...] = function(rng, out.shape)
        return out

    return Law(name, draw, warning)


def _signs(rng: np.random.Generator, out: Array) -> Array:
    """-1 or +1, each with probability 1/2, from one random bit per number."""
    bits = np.unpackbits(np.frombuffer(rng.bytes((out.size + 7) // 8), dtype=np.uint8), count=out.size)
    return np.subtract(np.multiply(bits.reshape(out.shape), 2.0, out=out), 1.0, out=out)


GAUSSIAN = Law("gaussian", lambda rng, out: rng.standard_normal(out=out))
LAWS = {
    "gaussian": GAUSSIAN,
    "rademacher": Law("rademacher", _signs),
    "laplace": _drawing("laplace", lambda rng, shape: rng.laplace(0.0, math.sqrt(0.5), shape)),
    "exponential": Law("exponential", lambda rng, out: np.subtract(rng.standard_exponential(out=out), 1.0, out=out)),
    "cauchy": student_t(1),
}
"""The laws without a parameter, by name."""


def _named(text: str) -> Law:
    name, given = found.groups("") if (found := CALL.fullmatch(text)) else (text, "")
    if name in LAWS and not given.strip():
        return LAWS[name]
    if name in LAWS:
        raise Wrong(f"{name} takes no number, got {text!r:.60}")
    if name != "student_t":
        raise unknown("law", name, [*LAWS, "student_t(df)"])
    top, bottom = found.groups("1") if (found := STUDENT_T.fullmatch(given.strip())) else ("", "")
    try:
        df = float(top) / float(bottom)
    except (ValueError, ZeroDivisionError):
        raise Wrong(f"student_t takes one number, df, as in student_t(5), got {text!r:.60}") from None
    return student_t(df)


def _tried(function: Function) -> Law:
    """A user's function as a law; refused if a draw is far from mean 0 and variance 1."""
    name = getattr(function, "__name__", type(function).__name__)
    trial = np.asarray(function(np.random.default_rng(0), TRIAL_SHAPE))
    if trial.shape != TRIAL_SHAPE or trial.dtype.kind not in "fiu":
        raise Wrong(f"{name}(rng, {TRIAL_SHAPE}) must return numbers of that shape, got shape {trial.shape}")
    if not np.all(np.isfinite(trial)):
        raise Wrong(f"{name} drew numbers that are not finite")
    mean, variance = float(trial.mean()), float(trial.var())
    if abs(mean) > MAX_TRIAL_MEAN or not TRIAL_VARIANCES[0] < variance < TRIAL_VARIANCES[1]:
        raise Wrong(
            f"{name} must have mean 0 and variance 1, but {trial.size:,} draws have mean {mean:.3g} and variance "
            f"{variance:.3g}; centre and scale it, or name a law without a variance: student_t(2), cauchy"
        )
    return _drawing(name, function)
