"""Sweeps over batch size: tuned steps at each, critical batch size, regimes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..engine.readable import Tabular
from ..engine.run import Method, number, numbers
from ..engine.spectrum import Spectrum
from ..optimizers import SGD
from ..optimizers.base import Averaging, Optimizer, Written, as_optimizer, nested, parameters
from ..problems.base import MAX_STEPS, AnyLaw, Problem, check_batch_size, check_target
from ..problems.bounds import bayes_bound, conjugate_gradient_steps, knee, paper_bound
from ..sampling.bases import Rotation
from ..types import Array, Progress, Wrong
from .answer import PLAIN, Goal, Sampling, Tuned
from .exact.tuning import tuner
from .races.ladder import RaceTuner

if TYPE_CHECKING:
    from ..show.chart import OnAxes

Definition = Literal["20%", "2x", "ratio", "knee"]
DEFINITIONS: dict[Definition, str] = {
    "20%": "steps exceed perfect scaling by 20%",
    "2x": "steps are twice perfect scaling",
    "ratio": "fewest examples over fewest steps, Emin / Smin",
    "knee": "closed form tr(P^-1 C) / (2 max(h / P) target)",
}
EXCESS: dict[Definition, float] = {"20%": 1.2, "2x": 2.0}
MEASURED_BY: dict[Definition, float] = {**EXCESS, "ratio": 2.0}  # Steps over perfect scaling that a sweep must reach.
FEWEST_SIZES = 3  # With fewer batch sizes a critical batch size is called rough.
ADDED_OCTAVES = (-6, -4, -2, 0, 2)  # Batch sizes to add lie at these powers of two around the expected bend,
ADDED_APART = 0.75  # and at least this many octaves from the batch sizes of the sweep.
NO_KNEE = "there is a closed form only for SGD, alone or behind a fixed preconditioner, without momentum and averages"
DEFAULT_BATCH_SIZES = tuple(2**e for e in range(2, 21, 2))


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Tabular):
    """Tuned steps to a target over batch sizes.

    At a batch size that did not reach the target, steps and settings are NaN and ``messages`` says why. ``examples`` are NaN
    if a batch size is no number of examples, as in a forecast from logs without batch sizes. Perfect scaling
    takes the fewest examples of the sweep at every batch size. ``smallest_steps`` are the tuned steps without noise.
    ``method`` says how steps were found: "exact", by "mean field", or "sampled". ``steps_stderr`` has the standard errors of
    sampled steps, and is None otherwise.
    """

    family: Optimizer  # With the free parameters that were tuned at each batch size.
    target: float
    batch_sizes: Array
    steps: Array
    examples: Array
    optimizers: tuple[Optimizer | None, ...]
    lr: Array
    effective_lr: Array
    at_bound: tuple[tuple[str, ...], ...]
    messages: tuple[str, ...]
    smallest_steps: float
    spectrum: Spectrum | None  # None if no lower bounds on the steps are known
    steps_stderr: Array | None = None
    method: Method = "exact"

    @property
    def label(self) -> str:
        return str(self.family)

    @property
    def power(self) -> float:
        """The power of the preconditioner, which the closed forms need."""
        return self.family.preconditioning

    def _brief(self) -> str:
        critical = self.critical_batch_size()
        bend = f", critical batch size {float(f'{critical:.3g}'):,.10g}" if math.isfinite(critical) else ""
        return f"{self.label} to loss {self.target:g}, {course(self.batch_sizes, self.steps)}{bend}"

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(m for m, T in zip(self.messages, self.steps, strict=True) if math.isnan(T)))

    def critical_batch_size(self, definition: Definition = "20%") -> float:
        """Batch size beyond which returns diminish, by a stated definition (`DEFINITIONS`); NaN if the sweep does not bracket it.

        `remarks` says why it is NaN, or that it is rough.
        """
        if definition not in DEFINITIONS:
            raise Wrong(f"definition must be one of {', '.join(DEFINITIONS)}, got {definition!r}", "definition")
        if definition == "knee":
            *wrappers, inner = nested(self.family)
            plain = (
                self.family.linear and isinstance(inner, SGD) and not any(isinstance(w, Averaging) for w in wrappers)
            )
            return knee(self.spectrum, self.target, self.power) if plain and self.spectrum is not None else math.nan
        if definition == "ratio":
            return float(np.fmin.reduce(self.examples) / self.smallest_steps)
        return float(excess_at(self.batch_sizes, self.examples, EXCESS[definition]))

    def remarks(self) -> dict[Definition, str]:
        """For each definition whose critical batch size is missing or rough: why, and which batch sizes to add."""
        reached = (self.steps >= 0) & np.isfinite(
            self.batch_sizes
        )  # an infinite batch size has no place among the others
        found: dict[Definition, str] = {}
        if not reached.any():
            found = dict.fromkeys(MEASURED_BY, "no batch size reached the target")
        for definition, factor in MEASURED_BY.items() if reached.any() and self.smallest_steps > 0 else ():
            if why := self._doubt(self.batch_sizes[reached], self.steps[reached], factor):
                word = "not known" if math.isnan(self.critical_batch_size(definition)) else "rough"
                found[definition] = f"{word}: {why}"
        if math.isnan(self.critical_batch_size("knee")):
            found["knee"] = NO_KNEE if self.spectrum is not None else "there is no closed form for this problem"
        return found

    def _doubt(self, B: Array, T: Array, factor: float) -> str:
        """Why tuned steps T at batch sizes B do not show where they exceed perfect scaling by a factor, and sizes to add."""
        excess = T * B / np.min(T * B)
        if len(B) < FEWEST_SIZES:
            why = f"the sweep has {len(B)} batch size{'s' * (len(B) > 1)}"
        elif excess[-1] < factor:
            why = "no batch size is beyond the bend"
        elif T[0] > EXCESS["20%"] * (T[0] - self.smallest_steps):
            why = "already the smallest batch size is beyond the bend"
        else:
            return ""
        # Batch sizes around the bend, E / smallest_steps, of the hyperbola T = smallest_steps + E / B through the first point.
        bend = math.log2(max(T[0] / self.smallest_steps - 1, 1 / 16) * B[0])
        wanted = dict.fromkeys(2 ** max(0, round(bend) + octaves) for octaves in ADDED_OCTAVES)
        new = [size for size in wanted if np.all(np.abs(np.log2(B / size)) > ADDED_APART)] or [
            2 ** math.ceil(np.log2(4 * B[-1]))
        ]
        return f"{why}; add {', '.join(f'{size:,}' for size in new)}"

    def regimes(self) -> dict[str, tuple[float, float]]:
        """Batch sizes of the three regimes: perfect scaling (within 20%), diminishing returns, maximal data parallelism.

        The last begins where steps come within 20% of the fewest possible. NaN where no batch size reached the target.
        """
        sizes = self.batch_sizes[np.isfinite(self.steps)]
        if not len(sizes):
            return dict.fromkeys(("perfect", "diminishing", "maximal"), (math.nan, math.nan))
        first, last = float(sizes[0]), float(sizes[-1])
        leave = float(excess_at(self.batch_sizes, self.examples, EXCESS["20%"]))
        leave = last if math.isnan(leave) else leave
        near = np.flatnonzero(self.steps <= EXCESS["20%"] * self.smallest_steps)
        arrive = max(float(self.batch_sizes[near[0]]), leave) if len(near) else last
        return {"perfect": (first, leave), "diminishing": (leave, arrive), "maximal": (arrive, last)}

    def perfect_scaling(self) -> Array:
        """Steps at each batch size with the fewest examples of the sweep; NaN if no batch size reached the target."""
        reached = np.isfinite(self.steps).any()
        return np.fmin.reduce(self.examples) / self.batch_sizes if reached else self.steps

    def bounds(self) -> dict[str, Any]:
        """Fewest steps by the paper's bound and the Bayes bound at each batch size, and of conjugate gradients without noise.

        They are NaN where the problem has no such bounds.
        """
        if self.spectrum is None:
            unknown = np.full(len(self.batch_sizes), math.nan)
            return {"paper": unknown, "bayes": unknown, "conjugate_gradients": math.nan}
        return {
            "paper": np.array([paper_bound(self.spectrum, self.target, B) for B in self.batch_sizes]),
            "bayes": np.array([bayes_bound(self.spectrum, self.target, B) for B in self.batch_sizes]),
            "conjugate_gradients": conjugate_gradient_steps(self.spectrum, self.target, self.power),
        }

    def table(self) -> list[dict[str, Any]]:
        """One row for each batch size; None where there is no number."""
        columns = {"batch_size": self.batch_sizes, "steps": self.steps, "steps_stderr": self.steps_stderr}
        columns |= {"examples": self.examples, "lr": self.lr, "effective_lr": self.effective_lr}
        return [
            {
                **{name: number(column[i]) for name, column in columns.items() if column is not None},
                **{name: number(p.value) for name, p in (parameters(o) if o else {}).items() if name != "lr"},
                "optimizer": str(o) if o else None,
                "at_bound": " ".join(self.at_bound[i]),
                "message": self.messages[i],
            }
            for i, o in enumerate(self.optimizers)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "target": self.target,
            **{n: numbers(getattr(self, n)) for n in ("batch_sizes", "steps", "examples", "lr", "effective_lr")},
            "steps_stderr": None if self.steps_stderr is None else numbers(self.steps_stderr),
            "optimizers": [str(o) if o else None for o in self.optimizers],
            "at_bound": [list(names) for names in self.at_bound],
            "messages": list(self.messages),
            "smallest_steps": number(self.smallest_steps),
            "critical_batch_size": {d: number(self.critical_batch_size(d)) for d in DEFINITIONS},
            "remarks": dict(self.remarks()),
            "regimes": {name: numbers(ends) for name, ends in self.regimes().items()},
            "method": self.method,
        }

    def plot(self, path: str | None = None, *, ax: OnAxes | None = None) -> Any:
        """Steps against batch size; a matplotlib figure, written to ``path`` if given."""
        from ..show.plots import plot_sweeps

        return plot_sweeps([self], path, ax=ax)


def course(batch_sizes: Array, steps: Array) -> str:
    """A line with the first and last steps over batch sizes; steps are NaN where the target was not reached."""
    found = steps[np.isfinite(steps)]
    ends = f"batch sizes {batch_sizes[0]:,.10g} to {batch_sizes[-1]:,.10g}"
    if not len(found):
        return f"{ends}: none reached it"
    missed = "" if len(found) == len(steps) else f", {len(steps) - len(found)} of {len(steps)} did not reach it"
    return f"{ends}: {found[0]:,.0f} -> {found[-1]:,.0f} steps{missed}"


def excess_at(batch_sizes: Array, examples: Array, factor: float) -> Array:
    """The batch size at which examples first exceed ``factor`` times their minimum, interpolated in logs; NaN if nowhere.

    Curves lie along the last axis of ``examples``, and what is not finite is omitted.

    >>> B = np.array([8.0, 16, 32])
    >>> excess_at(B, np.array([[1.0, 1, 4], [1, 2, 4]]), 2).round(1).tolist()
    [22.6, 16.0]
    """
    examples = np.asarray(examples, dtype=float)
    known = np.isfinite(examples)
    least = np.min(examples, axis=-1, initial=math.inf, where=known)
    first = np.argmin(np.where(known, examples, math.inf), axis=-1)
    found, before, place = (np.full(examples.shape[:-1], math.nan) for _ in range(3))
    with np.errstate(all="ignore"):  # What is not above the factor is computed as well, and not taken.
        for i, B in enumerate(batch_sizes):
            excess = examples[..., i] / least
            part = np.log(factor / before) / np.log(excess / before)
            above = known[..., i] & (excess > factor) & (first < i) & np.isnan(found)
            found = np.where(above, place * (B / place) ** part, found)
            before, place = (np.where(known[..., i], now, old) for now, old in ((excess, before), (B, place)))
    return found


def sweep(
    problem: Problem,
    optimizer: Written,
    batch_sizes: Sequence[float] | Array | None = None,
    *,
    target: float,
    max_steps: int = MAX_STEPS,
    noise: AnyLaw = "gaussian",
    seed: int = 0,
    rotation: Rotation = None,
    sampled: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Tune an optimizer's free parameters at each batch size; ``noise``, ``seed``, ``rotation`` and ``sampled`` are those of `tune`.

    >>> from nqm import HeavyBall, Quadratic, Spectrum
    >>> result = sweep(Quadratic(Spectrum.power_law(10_000)), HeavyBall(), [2**10, 2**12], target=0.01)
    >>> [round(T, -2) for T in result.steps.tolist()]
    [5000.0, 1300.0]
    """
    target, sizes, optimizer = check_target(target), sorted_sizes(batch_sizes), as_optimizer(optimizer)
    sampling = Sampling.of(optimizer, noise, seed, rotation, sampled)
    answers: list[Tuned[Optimizer]] = []
    for found, total in tuned_points(problem, optimizer, sizes, target, max_steps, sampling):
        if progress:
            progress(len(answers), total)
        answers.append(found)
    if progress:
        progress(len(answers), len(answers))
    answers.sort(key=lambda found: found.batch_size)
    return assembled(problem, optimizer, target, sizes, answers)


def sorted_sizes(batch_sizes: Sequence[float] | Array | None) -> Array:
    """Batch sizes in rising order and without duplicates; the default ones for None."""
    given = DEFAULT_BATCH_SIZES if batch_sizes is None else batch_sizes
    sizes = np.array(sorted({check_batch_size(B) for B in given}))
    if not len(sizes):
        raise Wrong("batch_sizes must not be empty", "batch_sizes")
    return sizes


def tuned_points(
    problem: Problem,
    optimizer: Optimizer,
    sizes: Array,
    target: float,
    max_steps: int = MAX_STEPS,
    sampling: Sampling = PLAIN,
) -> Iterator[tuple[Tuned[Optimizer], int]]:
    """The points of a sweep as they are found, each with the number of points of the whole sweep.

    A target reached at one batch size is reached at larger ones, so each point starts from the one before. Races are
    shortest without noise, and begin there.
    """
    solver = tuner(problem, optimizer, sampling)
    races = isinstance(solver, RaceTuner)
    order = [math.inf, *sizes[::-1]] if races else [*sizes, *([math.inf] if problem.noiseless else [])]
    last: Tuned[Optimizer] | None = None
    for B in order:
        near = last if last is not None and last.steps is not None else None
        last = solver.solve(Goal.of(B, target, max_steps=max_steps), near)
        yield last, len(order)


def assembled(
    problem: Problem, optimizer: Optimizer, target: float, sizes: Array, answers: Sequence[Tuned[Optimizer]]
) -> Sweep:
    """The sweep of these answers: one for each batch size, and at the end one without noise if the problem has one."""
    found, limit = answers[: len(sizes)], answers[len(sizes) :]
    optimizers = tuple(None if a.steps is None else a.optimizer for a in found)
    known = [{} if o is None else parameters(o) for o in optimizers]
    steps, errors = (np.array([getattr(a, name) for a in found], dtype=float) for name in ("steps", "stderr"))
    # A search that is not exact may find fewer steps with noise than without.
    fewest = float(limit[0].steps) if limit and limit[0].steps is not None else math.nan
    fewest = fewest if optimizer.linear else float(np.fmin.reduce(steps, initial=fewest))
    examples = steps * sizes if problem.counts_examples else np.full(len(sizes), math.nan)
    return Sweep(
        family=optimizer, target=target, batch_sizes=sizes, steps=steps, examples=examples,
        optimizers=optimizers, lr=np.array([float(of["lr"].value) if "lr" in of else math.nan for of in known]),
        effective_lr=np.array([math.nan if o is None else float(o.effective_lr) for o in optimizers]),
        at_bound=tuple(a.at_bound for a in found), messages=tuple(a.message for a in found),
        smallest_steps=fewest, spectrum=problem.spectrum if problem.noiseless else None,
        steps_stderr=errors if found[0].method == "sampled" else None, method=found[0].method,
    )  # fmt: skip
