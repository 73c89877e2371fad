"""Check an optimizer of one's own: `check_optimizer`, which ``nqm doctor`` prints and a test suite can assert.

The checks that every optimizer passes at its first use come first (`nqm.optimizers.checks`). Then its two statements, `system`
and `update`, are compared, and its exact moments are compared with a plain loop, up to the edge of stability and beyond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..engine.readable import Listed
from ..engine.run import Outcome
from ..engine.spectrum import Spectrum
from ..optimizers.base import Optimizer, Written, as_optimizer, fill, parameters
from ..optimizers.checks import CHECKS, EXAMPLE_CURVATURES, EXAMPLE_STEPS, example_of, fault_in, stated
from ..types import Array, Wrong
from .quadratic import Quadratic

MODES = np.array([1.0, 0.3, 0.02])  # curvatures of the problem on which an optimizer is run
REPORTED = [1, 2, 3, 5, 10, 30, 60]  # steps at which losses are compared
REPLICAS = 20_000  # number of sampled runs
LARGEST_Z = (
    5.0  # most standard errors between sampled and exact loss; a sound optimizer exceeds it once in 250,000 checks
)
FIELD_MODES, FIELD_BATCH, FIELD_STEPS = 100, 64, [1, 3, 10, 30, 100, 300]  # the run on which a mean field is checked
FIELD_REPLICAS = 2_000  # number of sampled runs that check it
FIELD_ERROR = (
    0.05  # largest relative error of a mean field beyond that of the samples; those of the package are within 3% here
)
LOOP_STEPS = 2000  # length of the plain loop that tells a stable learning rate from an unstable one
LOOP_GROWTH = (
    1e3  # growth over half of the loop that shows instability; stable averages and momenta grow 8-fold at most
)
AGREES = 1e-9  # largest relative difference between the exact loss and the plain loop, close to the limit
EDGE_RATIO = (
    64.0  # largest ratio between the stability limit and `edge`; searches try rates up to this multiple of `edge`
)


@dataclass(frozen=True)
class Diagnosis(metaclass=Listed):
    """The outcome of one check: whether it passed, or None if it does not apply, and a sentence with its number."""

    check: str
    passed: bool | None
    message: str


def check_optimizer(optimizer: Written) -> list[Diagnosis]:
    """Check the shapes of an optimizer, arrays of modes, dependence on t, A - I, `system` against `update`, stability and edge.

    Free parameters get typical values. In a test suite, write
    ``assert all(found.passed is not False for found in check_optimizer(QHM()))``.

    >>> from nqm import HeavyBall
    >>> [found.check for found in check_optimizer(HeavyBall(momentum=0.9)) if found.passed]
    ['shapes', 'modes', 'steps', 'change', 'sampling', 'stability', 'edge']
    """
    optimizer = as_optimizer(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise Wrong(f"check_optimizer needs an optimizer such as SGD(0.1), got {optimizer!r:.60}", "optimizer")
    return list(_diagnoses(example_of(optimizer)))


def _diagnoses(optimizer: Optimizer) -> Iterator[Diagnosis]:
    if not optimizer.linear:
        yield Diagnosis("system", None, "it is not linear: it has an update rule and no system")
        yield _sampling(optimizer)
        yield _mean_field(optimizer)
        return
    passed = {
        "shapes": f"{len(optimizer.initial())} slots in system, readout and gradient_point",
        "modes": f"{len(EXAMPLE_CURVATURES)} curvatures at once give the systems of each alone",
        "steps": f"{len(EXAMPLE_STEPS)} steps up to {EXAMPLE_STEPS[-1]} are alike where it says so, with cycle {optimizer.cycle}",
        "change": "without any gradient nothing grows",
    }
    for name in CHECKS:
        fault = fault_in(name, optimizer)
        yield Diagnosis(name, not fault, fault or passed[name])
        if fault:  # The other checks would only repeat the fault.
            return
    yield _sampling(optimizer)
    if "lr" not in parameters(optimizer):
        yield Diagnosis("stability", None, "it has no single parameter lr, which a limit could be about")
        return
    limit = Quadratic(Spectrum(MODES)).stability_limit(optimizer)
    if optimizer.cycle:
        yield _stability(optimizer, limit)
    else:
        yield Diagnosis("stability", None, f"its steps never repeat: lr < {limit:.6g} is the limit of late steps alone")
    yield _edge(optimizer, limit)


def _sampling(optimizer: Optimizer) -> Diagnosis:
    """`system` against `update`: the exact loss against the mean of sampled runs."""
    problem = Quadratic(Spectrum(MODES))
    try:
        sampled = problem.sample(optimizer, 4, REPORTED, replicas=REPLICAS)
    except Wrong as error:  # It has no update rule, or its rule returns what is not a state, which is a fault of it.
        return Diagnosis("sampling", False if error.argument == "optimizer" else None, str(error))
    if not optimizer.linear:
        told = "is finite" if sampled.outcome.ok else "is not finite; give a smaller lr, and change no array in place"
        return Diagnosis("sampling", sampled.outcome.ok or None, f"the mean loss of {REPLICAS:,} replicas {told}")
    assert sampled.stderr is not None
    exact = problem.run(optimizer, 4, REPORTED).loss
    z = np.abs(sampled.loss - exact) / sampled.stderr
    i = int(np.argmax(z))
    found = f"exact and sampled loss are at most {z[i]:.2g} standard errors apart, at {len(z)} steps of {REPLICAS:,} replicas"
    if z[i] < LARGEST_Z:
        return Diagnosis("sampling", True, found)
    says = f"after step {REPORTED[i]} system says {exact[i]:.4g} and update {sampled.loss[i]:.4g}"
    return Diagnosis("sampling", False, f"{found}: {says}; one of the two is not the method")


def _mean_field(optimizer: Optimizer) -> Diagnosis:
    """The mean field against the mean of sampled runs, on more modes than `MODES`, over which single swings cancel."""
    if not optimizer.has_mean_field:
        return Diagnosis("mean field", None, "it states none (linearised), so its loss is sampled")
    problem = Quadratic(Spectrum.power_law(FIELD_MODES))
    found = problem.run(optimizer, FIELD_BATCH, FIELD_STEPS)
    sampled = problem.sample(optimizer, FIELD_BATCH, FIELD_STEPS, replicas=FIELD_REPLICAS)
    assert sampled.stderr is not None
    off = np.abs(found.loss - sampled.loss)
    with np.errstate(all="ignore"):
        excess = (off - LARGEST_Z * sampled.stderr) / sampled.loss
    i = int(np.argmax(np.nan_to_num(excess, nan=math.inf)))
    told = f"after {FIELD_STEPS[i]} steps it says {found.loss[i]:.4g} and sampled runs {sampled.loss[i]:.4g}"
    if excess[i] <= FIELD_ERROR:
        return Diagnosis("mean field", True, f"it agrees with {FIELD_REPLICAS:,} sampled runs; at worst {told}")
    advice = "see that linearised is the step of update, or that the method is one for which a mean field holds"
    return Diagnosis("mean field", False, f"{told}, further apart than {FIELD_ERROR:.0%}; {advice}")


def _stability(optimizer: Optimizer, limit: float) -> Diagnosis:
    """The limit by eigenvalues of second moments, against a plain loop below and above it."""
    growth = []
    for factor in (0.95, 1.05):
        early, late = np.split(plain_losses(fill(optimizer, {"lr": factor * limit}), LOOP_STEPS), 2)
        growth.append(float(late.max() / early.max()) if np.isfinite(late).all() else math.inf)
    found = f"eigenvalues say lr < {limit:.6g}; in half of a plain loop the loss grows {growth[0]:.2g}-fold 5% below"
    passed = growth[0] < LOOP_GROWTH < growth[1]
    advice = "" if passed else "; see that cycle, repeats_from and same_until are those of system"
    return Diagnosis("stability", passed, f"{found} and {growth[1]:.2g}-fold 5% above{advice}")


def _edge(optimizer: Optimizer, limit: float) -> Diagnosis:
    """The exact loss at the limit against a plain loop, the outcome beyond it, and the `edge` that searches use."""
    problem, repeats = Quadratic(Spectrum(MODES, c=1.0)), optimizer.cycle > 0
    # Where steps never repeat, the first of them can lose all digits close to the limit of the late ones.
    near = fill(optimizer, {"lr": limit * (1 - 1e-6 if repeats else 1 / 8)}).at_horizon(REPORTED[-1])
    exact, loop = problem.run(near, 1, REPORTED).loss, plain_losses(near, REPORTED[-1])[np.array(REPORTED) - 1]
    error, ratio = float(np.max(np.abs(exact / loop - 1))), limit / float(np.min(optimizer.edge(MODES)))
    where = "at the limit" if repeats else "at an eighth of the limit"
    found = f"{where} the exact loss is within {error:.1g} of a plain loop, and limit / edge(h) is {ratio:.3g}"
    if not error < AGREES:
        advice = "see that pace is that of system, and keep velocities, not earlier weights"
        return Diagnosis("edge", False, f"{found}; {advice}")
    if not 1 / EDGE_RATIO < ratio < EDGE_RATIO:
        return Diagnosis("edge", False, f"{found}; edge(h) must come within {EDGE_RATIO:g} times of it for searches")
    beyond = problem.run(fill(optimizer, {"lr": 1.05 * limit}), 1, REPORTED).outcome if repeats else Outcome.diverged
    passed = beyond is Outcome.diverged
    told = "is said to diverge" if passed else "is not said to diverge; see that cycle is that of system"
    return Diagnosis("edge", passed, f"{found}{f'; 5% beyond it a run {told}' if repeats else ''}")


def plain_losses(optimizer: Optimizer, steps: int) -> Array:
    """The loss after each step with unit noise, by the plain loop ``M <- A M A' + b b'``; infinite once it overflows."""
    held = optimizer.at_horizon(steps)
    x = np.array(held.initial(), dtype=float)
    M, losses = np.outer(x, x), np.full(steps, math.inf)
    with np.errstate(all="ignore"):
        for t in range(steps):
            system = np.moveaxis(stated(held, MODES, t), -1, 0)
            A, b = np.eye(len(x)) + system[:, :-1], system[:, -1]
            M = A @ M @ np.swapaxes(A, 1, 2) + b[:, :, None] * b[:, None, :]
            r = np.stack([np.broadcast_to(e, MODES.shape) for e in held.readout(t + 1)], axis=-1)
            losses[t] = MODES @ np.einsum("xi,xij,xj->x", r, M, r) / 2
    return np.where(np.isfinite(losses), losses, math.inf)
