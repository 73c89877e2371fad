"""Checks that the statements of an optimizer agree; a contradiction would give wrong numbers without an error.

Problems call `require_sound`. Each class is checked once, at a few curvatures and steps, which takes a few milliseconds.
`nqm.check_optimizer` checks more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from ..types import Array, Wrong
from .base import Optimizer, Wrapper, fill, nested, parameters, require_set
from .kinds import free

EXAMPLE_CURVATURES = np.array([1e-4, 0.01, 0.3, 1.0, 30.0])  # curvatures at which a system is checked
EXAMPLE_STEPS = (*range(17), 31, 32, 99, 100, 1000)  # steps at which a system is checked
EXAMPLE_HORIZON = 200  # length of the run that is checked, for an optimizer that depends on it
ROUNDING = 1e-12  # largest relative difference of equal entries; powers of arrays and of numbers differ by 1e-16
TINY_RATE = 1e-12  # factor on the learning rate and on the curvature that makes gradients negligible
STILL_GROWTH = (
    0.01  # growth per step at TINY_RATE that shows a mistake; eigenvalues of defective systems are off by 1e-4
)
SAY_SO = "an optimizer whose steps differ must say so by same_until, cycle (0 if steps never repeat), repeats_from and steady"

_sound: set[tuple[type[Optimizer], ...]] = set()
"""What has passed the checks: the classes of an optimizer and of those that it wraps."""


def require_sound(optimizer: Optimizer, verb: str) -> None:
    """Refuse an optimizer with free parameters, or one that contradicts itself."""
    require_set(optimizer, verb)
    require_consistent(optimizer)


def require_consistent(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose statements contradict each other, at the first use of its class."""
    if not optimizer.linear or (key := tuple(map(type, nested(optimizer)))) in _sound:
        return
    if isinstance(optimizer, Wrapper):
        require_consistent(optimizer.inner)
    for name in CHECKS:
        if fault := fault_in(name, example_of(optimizer)):
            raise Wrong(f"{type(optimizer).__name__}: {fault} (see docs/extend.md)", argument="optimizer")
    _sound.add(key)


def fault_in(check: str, optimizer: Optimizer) -> str:
    """The fault that one of the `CHECKS` finds, or an empty text."""
    with np.errstate(all="ignore"):  # The curvatures may be beyond those that the optimizer is meant for.
        return CHECKS[check](optimizer.at_horizon(EXAMPLE_HORIZON))


def example_of(optimizer: Optimizer) -> Optimizer:
    """The optimizer with one value for each parameter: its own, the first of several, or a typical value if it is free."""
    values = {}
    for name, p in parameters(optimizer).items():
        usual = sum(p.kind.likely or (p.kind.low, p.kind.high)) / 2
        values[name] = np.ravel(p.kind.value(usual) if p.value is free else p.value)[0].item()
    return fill(optimizer, values)


def wrong_shape(optimizer: Optimizer) -> str:
    """What is wrong with the number of slots, rows or entries, or an empty text."""
    k, system = len(optimizer.initial()), optimizer.system(EXAMPLE_CURVATURES[:1], 0)
    try:
        G, b = system
        rows, noise = [len(row) for row in G], len(b)
    except (TypeError, ValueError):
        return f"system(h, t) must return G, a list of rows, and b, a list of entries, got {system!r:.80}"
    if (rows, noise) != ([k] * k, k):
        wanted = f"system(h, t) must return G as {k} rows of {k} entries and b as {k} entries"
        return f"initial() has {k} slots, so {wanted}; it returns rows of {rows} and {noise} in b"
    for entry in (*(entry for row in G for entry in row), *b):
        array = np.asarray(entry)
        if array.dtype.kind in "cSU":
            return f"the entries of system(h, t) must be real numbers or arrays of them, got {entry!r:.80}"
        if array.shape not in ((), (1,)):
            return (
                f"the entries of system(h, t) must be numbers or arrays like h, of shape (1,), got shape {array.shape}"
            )
    for name, slots in (("readout(1)", optimizer.readout(1)), ("gradient_point(0)", optimizer.gradient_point(0))):
        if len(slots) != k:
            return f"initial() has {k} slots, so {name} must have {k} entries; it has {len(slots)}"
    return ""


def mixed_modes(optimizer: Optimizer) -> str:
    """How the system of several modes differs from the systems of each mode alone, or an empty text."""
    advice = (
        "entries are numbers or arrays like h: write plain arithmetic on h, or np.where, and no if, h[0] or h.max()"
    )
    apart = [stated(optimizer, h[None], 0)[..., 0] for h in EXAMPLE_CURVATURES]
    try:
        together = stated(optimizer, EXAMPLE_CURVATURES, 0)
    except Exception as error:  # The user's arithmetic may raise anything, and it did not for single modes.
        failure = f"{type(error).__name__}: {error}"
        return f"system(h, t) works for one curvature but fails for an array of them ({failure}); {advice}"
    return "" if same(together, np.stack(apart, -1)) else f"system(h, t) mixes the modes of an array; {advice}"


def hidden_steps(optimizer: Optimizer) -> str:
    """Which steps differ although the optimizer says that they are alike, or an empty text."""
    cycle, late = optimizer.cycle, optimizer.repeats_from
    at = cache(lambda t: stated(optimizer, EXAMPLE_CURVATURES, t))
    for t, later in zip(EXAMPLE_STEPS, (*EXAMPLE_STEPS[1:], math.inf), strict=True):
        first = late + (t - late) % cycle if cycle and t >= late else t
        if not same(at(t), at(first)):
            said = f"cycle = {cycle} and repeats_from = {late} say that they are alike"
            return f"system(h, {t}) differs from system(h, {first}), but {said}; {SAY_SO}"
        if later < optimizer.same_until(t) and not same(at(t), at(later)):
            said = f"same_until({t}) = {optimizer.same_until(t):g} says that they are alike"
            return f"system(h, {later}) differs from system(h, {t}), but {said}; {SAY_SO}"
        if optimizer.steady and any(
            np.any(a != b) for a, b in zip(optimizer.readout(t), optimizer.readout(0), strict=True)
        ):
            return f"readout({t}) differs from readout(0), but steady = True says that they are alike; {SAY_SO}"
    return ""


def growing_slots(optimizer: Optimizer) -> str:
    """How fast slots grow without any gradient, or an empty text; stating A instead of A - I doubles the weights."""
    still, x = optimizer.scaled(lr=TINY_RATE), np.array(optimizer.initial(), dtype=float)
    for t in EXAMPLE_STEPS[:16]:
        A = np.eye(len(x)) + stated(still, TINY_RATE * EXAMPLE_CURVATURES[:1], t)[:-1, :, 0]
        x = A @ x
        if not np.all(np.isfinite(A)):
            return f"system(h, {t}) is not finite at h = {TINY_RATE * EXAMPLE_CURVATURES[0]:g}"
        growth = float(np.abs(np.linalg.eigvals(A)).max())
        if optimizer.cycle == 0:  # A sum of weights may grow, because readout divides it.
            growth = abs(float(sum(np.ravel(r)[0] * slot for r, slot in zip(optimizer.readout(t + 1), x, strict=True))))
        if not growth <= 1 + STILL_GROWTH:
            return (
                f"without any gradient it grows by a factor of {growth:.4g} in step {t}; system(h, t) must return "
                "the change G = A - I, not A: write -lr * h instead of 1 - lr * h, and momentum - 1 instead of momentum"
            )
    return ""


CHECKS: dict[str, Callable[[Optimizer], str]] = {
    "shapes": wrong_shape, "modes": mixed_modes, "steps": hidden_steps, "change": growing_slots,
}  # fmt: skip
"""The checks in their order; each is given an optimizer that passed those before it."""


def stated(optimizer: Optimizer, h: Array, t: int) -> Array:
    """G and below it b of step t as one array, (slots + 1, slots, modes)."""
    G, b = optimizer.system(h, t)
    found = np.empty((len(b) + 1, len(b), *h.shape))
    for i, row in enumerate((*G, b)):
        for j, entry in enumerate(row):
            found[i, j] = entry
    return found


def same(one: Array, other: Array) -> bool:
    """Whether two arrays agree to rounding. Both may be NaN, at curvatures that an optimizer is not meant for."""
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=0.0, equal_nan=True))
