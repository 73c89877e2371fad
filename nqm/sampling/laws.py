"""Laws of gradient noise: of mean 0 and variance 1, by name or as a function of your own.

The mean loss of a linear optimizer depends on the noise through its variance alone; what sampling under other laws
shows is that, and how an optimizer that is not linear feels their tails.

>>> law("student_t(5)").draw(np.random.default_rng(0), np.empty(3)).round(3).tolist()
[0.109, 0.106, 0.811]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..text.tokens import Text, bind
from ..types import Array, Wrong, unknown

Draw = Callable[[np.random.Generator, Array], Array]
Function = Callable[[np.random.Generator, tuple[int, ...]], Any]

TRIAL = (64, 1024)  # a draw of a user's function that is looked at before it is trusted
FAR = 0.1  # its mean may be this far from 0: 25 standard errors of the draw
RANGE = (0.5, 2.0)  # and its variance this far from 1, which leaves room for heavy tails


@dataclass(frozen=True)
class Law:
    """A law of noise: ``draw(rng, out)`` fills an array and returns it. ``warning`` says what moments do not exist."""

    name: str
    draw: Draw
    warning: str = ""


def law(noise: str | Function | Law) -> Law:
    """A law by its name, or a function ``(rng, shape) -> array`` of mean 0 and variance 1, which is tried once.

    Names are ``gaussian``, ``rademacher``, ``laplace``, ``exponential`` (centred), ``student_t(df)`` and ``cauchy``.
    Those without a variance are drawn as they are, and a run says so.
    """
    if isinstance(noise, Law):
        return noise
    if isinstance(noise, str):
        return _named(noise)
    if callable(noise):
        return _tried(noise)
    raise Wrong(
        f"noise must be a name such as 'gaussian', or a function of (rng, shape), got {noise!r:.60}", argument="noise"
    )


def gaussian() -> Law:
    """Standard normal."""
    return Law("gaussian", lambda rng, out: rng.standard_normal(out=out))


def rademacher() -> Law:
    """-1 or +1, each with probability 1/2."""

    def draw(rng: np.random.Generator, out: Array) -> Array:
        bits = np.unpackbits(np.frombuffer(rng.bytes((out.size + 7) // 8), dtype=np.uint8), count=out.size)
        return np.subtract(np.multiply(bits.reshape(out.shape), 2.0, out=out), 1.0, out=out)

    return Law("rademacher", draw)


def laplace() -> Law:
    """Two-sided exponential, of variance 1."""

    def draw(rng: np.random.Generator, out: Array) -> Array:
        out[...] = rng.laplace(0.0, math.sqrt(0.5), out.shape)
        return out

    return Law("laplace", draw)


def exponential() -> Law:
    """Exponential less its mean: skewed."""
    return Law("exponential", lambda rng, out: np.subtract(rng.standard_exponential(out=out), 1.0, out=out))


def student_t(df: float) -> Law:
    """Student's t with df degrees of freedom, of variance 1 where it has one: for df above 2."""
    if not 0 < df < math.inf:
        raise Wrong(f"student_t: df must be positive, got {df:g}")
    name = f"student_t({df:g})"
    scale = math.sqrt((df - 2) / df) if df > 2 else 1.0

    def draw(rng: np.random.Generator, out: Array) -> Array:
        return np.multiply(rng.standard_t(df, out.shape), scale, out=out)

    missing = "" if df > 2 else ("variance" if df > 1 else "mean and no variance")
    warning = f"{name} noise has no {missing}: the mean loss is infinite, and its estimate means nothing"
    return Law(name, draw, warning if missing else "")


def cauchy() -> Law:
    """Student's t with one degree of freedom: no mean, no variance."""
    return student_t(1)


LAWS: dict[str, Callable[..., Law]] = {
    f.__name__: f for f in (gaussian, rademacher, laplace, exponential, student_t, cauchy)
}


def _named(text: str) -> Law:
    source = Text("noise", text)
    function, args, named = source.call(source.tree)
    name = source.shown(function).strip("'\"")
    if name not in LAWS:
        raise unknown("noise", name, LAWS)
    values = {key: source.number(node) for key, node in named.items()}
    return LAWS[name](**bind(name, LAWS[name], [source.number(a) for a in args], values))


def _tried(function: Function) -> Law:
    name = getattr(function, "__name__", type(function).__name__)
    _check(name, function(np.random.default_rng(0), TRIAL))

    def draw(rng: np.random.Generator, out: Array) -> Array:
        out[...] = function(rng, out.shape)
        return out

    return Law(name, draw)


def _check(name: str, found: Any) -> None:
    """Refuse a function whose draw has another shape, or is far from mean 0 and variance 1."""
    trial = np.asarray(found)
    if trial.shape != TRIAL or trial.dtype.kind not in "fiu":
        raise Wrong(f"noise: {name}(rng, {TRIAL}) must return numbers of that shape, got shape {trial.shape}")
    if not np.all(np.isfinite(trial)):
        raise Wrong(f"noise: {name} drew numbers that are not finite")
    mean, variance = float(trial.mean()), float(trial.var())
    if abs(mean) > FAR or not RANGE[0] < variance < RANGE[1]:
        raise Wrong(
            f"noise: {name} must have mean 0 and variance 1, but {trial.size:,} draws have mean {mean:.3g} and variance "
            f"{variance:.3g}; centre and scale it, or name a law without a variance: student_t(2), cauchy"
        )


__all__ = ["LAWS", "Law", "cauchy", "exponential", "gaussian", "laplace", "law", "rademacher", "student_t"]
